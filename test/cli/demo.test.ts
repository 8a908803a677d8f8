import { mkdirSync, readdirSync, readFileSync, realpathSync, rmSync, statSync, writeFileSync } from "node:fs";
import { expect, test } from "vitest";
import { workplace } from "./plenum.ts";

test("commands find the running demo with --demo or without a configuration", async () => {
  const place = workplace("http://127.0.0.1:9", { PLENUM_CALLED: "./plenum" });
  expect(await place.refusal("status", "--demo")).toBe(
    "75 No demo is running. Start one in another terminal with `./plenum demo`.",
  );

  const demo = place.start("demo", "--folder", "the-demo");
  const printed = await demo.says("Ctrl-C ends it");
  expect(printed).toContain(" ./plenum tags --demo ");
  const [name = ""] = readdirSync(place.path("plenum"));
  const word = place.path(`plenum/${name}`);
  expect(statSync(word).mode & 0o777).toBe(0o600);

  const tags = () => place.plenum("tags", "--demo", "--json");
  await expect.poll(async () => JSON.parse((await tags()).stdout || "[]").length, { timeout: 60_000 }).toBe(186);
  expect((await place.plenum("check", "--demo")).code).toBe(0);
  const status = await place.plenum("status", "--demo");
  expect([status.code, status.stderr]).toEqual([0, ""]);
  expect((await place.plenum("run", "--demo")).stderr).toContain("plenum run takes no --demo.");

  expect((await place.plenum("plan", "--source", "demo")).stderr).toContain("There is no source demo");
  rmSync(place.path("plenum.yaml"));
  const plan = await place.plenum("plan", "--source", "demo");
  expect(plan.stderr).toMatch(
    /^There is no plenum\.yaml here; this is about the demo that runs \(http:\/\/127\.0\.0\.1:\d+\)\.$/m,
  );
  expect([plan.code, plan.stdout]).toEqual([0, expect.stringMatching(/^source demo: 6 sites, /)]);
  expect((await place.plenum("status", "--config", "other.yaml")).stderr).toContain("does not exist");
  expect((await place.plenum("run")).stderr).toContain("plenum.yaml does not exist. Make one with `./plenum init`");

  const left = readFileSync(word, "utf8");
  await demo.stop();
  expect((await place.plenum("status", "--demo")).code).toBe(75);
  // As after `kill -9` of a demo.
  mkdirSync(place.path("plenum"), { mode: 0o700 });
  writeFileSync(word, left);
  expect((await place.plenum("status", "--demo")).code).toBe(75);
}, 180_000);

test("`demo` rejects an unusable folder and names the option --folder", async () => {
  const place = workplace("http://127.0.0.1:9");
  const { code, stderr } = await place.plenum("demo", "--folder", "token/demo");
  expect([code, stderr.trimEnd().split("\n").at(-1)]).toEqual([
    78,
    `The demo cannot keep its state and its events in ${realpathSync(place.folder)}/token/demo (ENOTDIR). Name a folder that you may write, such as --folder /tmp/plenum-demo.`,
  ]);
});
