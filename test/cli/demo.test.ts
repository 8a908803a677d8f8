import { mkdirSync, readdirSync, readFileSync, realpathSync, rmSync, statSync, writeFileSync } from "node:fs";
import { connectAsync } from "mqtt";
import { expect, onTestFinished, test } from "vitest";
import { openHarness } from "./plenum.ts";

test("commands find the running demo with --demo or without a configuration", async () => {
  const cli = openHarness("http://127.0.0.1:9", { PLENUM_CALLED: "./plenum" });
  expect(await cli.refusal("status", "--demo")).toBe(
    "75 No demo is running. Start one in another terminal with `./plenum demo`.",
  );

  const demo = cli.start("demo", "--folder", "the-demo");
  const demoOutput = await demo.waitForOutput("Ctrl-C ends it");
  expect(demoOutput).toContain(" ./plenum tags --demo ");
  const [name = ""] = readdirSync(cli.path("plenum"));
  const demoFile = cli.path(`plenum/${name}`);
  expect(statSync(demoFile).mode & 0o777).toBe(0o600);
  const tags = () => cli.plenum("tags", "--demo", "--json");
  await expect.poll(async () => JSON.parse((await tags()).stdout || "[]").length).toBe(186);
  expect((await cli.plenum("check", "--demo")).code).toBe(0);
  const [, host, port, topic = ""] = / mosquitto_pub -h (\S+) -p (\d+) -q 1 -t (\S+) -m 75\n/.exec(demoOutput) ?? [];
  const client = await connectAsync(`mqtt://${host}:${port}`);
  onTestFinished(() => client.endAsync());
  const outcomes: string[] = [];
  client.on("message", (_, payload) => outcomes.push(JSON.parse(payload.toString()).outcome));
  await client.subscribeAsync("plenum/demo/+/tag/10169/result");
  await client.publishAsync(topic, "75", { qos: 1 });
  await expect.poll(() => outcomes).toEqual(["confirmed"]);
  const status = await cli.plenum("status", "--demo");
  expect([status.code, status.stderr]).toEqual([0, ""]);
  expect((await cli.plenum("run", "--demo")).stderr).toContain("plenum run takes no --demo.");
  expect((await cli.plenum("plan", "--source", "demo")).stderr).toContain("There is no source demo");
  rmSync(cli.path("plenum.yaml"));
  const plan = await cli.plenum("plan", "--source", "demo");
  expect(plan.stderr).toMatch(
    /^There is no plenum\.yaml here; this is about the demo that runs \(http:\/\/127\.0\.0\.1:\d+\)\.$/m,
  );
  expect([plan.code, plan.stdout]).toEqual([0, expect.stringMatching(/^source demo: 6 sites, /)]);
  expect((await cli.plenum("status", "--config", "other.yaml")).stderr).toContain("does not exist");
  expect((await cli.plenum("run")).stderr).toContain("plenum.yaml does not exist. Make one with `./plenum init`");
  const demoFileText = readFileSync(demoFile, "utf8");
  await demo.stop();
  expect((await cli.plenum("status", "--demo")).code).toBe(75);
  // As after `kill -9` of a demo.
  mkdirSync(cli.path("plenum"), { mode: 0o700 });
  writeFileSync(demoFile, demoFileText);
  expect((await cli.plenum("status", "--demo")).code).toBe(75);
});

test("plenum demo rejects an unusable folder and names the option --folder", async () => {
  const cli = openHarness("http://127.0.0.1:9");
  const { code, stderr } = await cli.plenum("demo", "--folder", "token/demo");
  expect([code, stderr.trimEnd().split("\n").at(-1)]).toEqual([
    78,
    `The demo cannot keep its state and its events in ${realpathSync(cli.folder)}/token/demo (ENOTDIR). Name a folder that you may write, such as --folder /tmp/plenum-demo.`,
  ]);
});
