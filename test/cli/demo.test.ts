import { mkdirSync, readdirSync, readFileSync, realpathSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { connectAsync } from "mqtt";
import { describe, expect, onTestFinished, test } from "vitest";
import { findPostgresFolder } from "#src/cli/demo/start-postgres.ts";
import type { FleetStatus } from "#src/scale/fleet/fleet-status.ts";
import { absent } from "../real-servers.ts";
import { workplace } from "./plenum.ts";

test("commands find the running demo with --demo or without a configuration", async () => {
  const cli = workplace("http://127.0.0.1:9", { PLENUM_CALLED: "./plenum" });
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
  await expect.poll(async () => JSON.parse((await tags()).stdout || "[]").length, { timeout: 60_000 }).toBe(186);
  expect((await cli.plenum("check", "--demo")).code).toBe(0);
  const [, host, port, topic = ""] = / mosquitto_pub -h (\S+) -p (\d+) -q 1 -t (\S+) -m 75\n/.exec(demoOutput) ?? [];
  const client = await connectAsync(`mqtt://${host}:${port}`);
  onTestFinished(() => client.endAsync());
  const outcomes: string[] = [];
  client.on("message", (_, payload) => outcomes.push(JSON.parse(payload.toString()).outcome));
  await client.subscribeAsync("plenum/demo/+/tag/10169/result");
  await client.publishAsync(topic, "75", { qos: 1 });
  await expect.poll(() => outcomes, { timeout: 60_000 }).toEqual(["confirmed"]);
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
}, 180_000);

test("plenum demo rejects an unusable folder and names the option --folder", async () => {
  const cli = workplace("http://127.0.0.1:9");
  const { code, stderr } = await cli.plenum("demo", "--folder", "token/demo");
  expect([code, stderr.trimEnd().split("\n").at(-1)]).toEqual([
    78,
    `The demo cannot keep its state and its events in ${realpathSync(cli.folder)}/token/demo (ENOTDIR). Name a folder that you may write, such as --folder /tmp/plenum-demo.`,
  ]);
});

function parseMembers(printed: string): readonly { readonly url: string; readonly pid: number }[] {
  return [...printed.matchAll(/member-\d +(http:\S+) +kill -9 (\d+)/g)].map(([, url = "", pid]) => ({
    url,
    pid: Number(pid),
  }));
}

const leftoverFolders = () => readdirSync(tmpdir()).filter((name) => /^plenum-(postgres|fleet)-/.test(name));

function runs(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

describe.skipIf(absent("postgres"))("plenum demo --fleet", { timeout: 240_000 }, () => {
  test("the demo of a fleet prints a takeover after a member is killed, and leaves no files behind", async () => {
    const cli = workplace("http://127.0.0.1:9");
    const demo = cli.start("demo", "--fleet", "2");
    const members = parseMembers(await demo.waitForOutput("Ctrl-C ends all of it"));
    expect(members).toHaveLength(2);
    const [first, second] = members;
    const fetchStatus = async (url = "") => (await (await fetch(`${url}/api/fleet`)).json()) as FleetStatus;
    const holderNames = async () => new Set((await fetchStatus(second?.url)).sources.map(({ holder }) => holder));
    await expect.poll(holderNames, { timeout: 60_000 }).toEqual(new Set(["member-1", "member-2"]));
    process.kill(first?.pid ?? 0, "SIGKILL");
    await demo.waitForOutput("member-1 ended (SIGKILL)");
    await expect.poll(holderNames, { timeout: 60_000 }).toEqual(new Set(["member-2"]));
    await demo.waitForOutput("member-1 → member-2  (its member no longer reports)");
    const fleetOutput = await cli.plenum("fleet", "--demo", "--json");
    expect([fleetOutput.code, fleetOutput.stdout]).toEqual([0, expect.stringContaining('"lost"')]);
    demo.signal("SIGINT");
    const { code, stderr } = await demo.ended;
    expect([code, stderr]).toEqual([0, expect.stringContaining("Stopped; nothing of it is left.")]);
    expect([leftoverFolders(), members.filter(({ pid }) => runs(pid))]).toEqual([[], []]);
  });

  test("the demo of a fleet rejects a wrong number of members, and names a missing package in one line", async () => {
    const cli = workplace("http://127.0.0.1:9");
    expect(await cli.refusal("demo", "--fleet", "many")).toMatch(/^78 .*1 to 9 members, not many/);
    expect(leftoverFolders()).toEqual([]);
    expect(() => findPostgresFolder([cli.folder])).toThrow("A fleet needs PostgreSQL, and none is installed here.");
  });
});
