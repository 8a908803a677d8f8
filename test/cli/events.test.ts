import { expect, onTestFinished, test } from "vitest";
import type { AnyEvent } from "#src/core/model/event.ts";
import { type Harness, servedHarness } from "./plenum.ts";

type Line = AnyEvent & { readonly position: number };

async function events(cli: Harness, ...args: readonly string[]): Promise<readonly Line[]> {
  const { code, stdout, stderr } = await cli.plenum("events", "--json", ...args);
  expect(code, stderr).toBe(0);
  return stdout
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line) as Line);
}

test("plenum events lists events with filters, follows a running worker, and rejects an invalid priority", async () => {
  const { service, cli } = await servedHarness({ sites: [1, 6], alarms: { recorded: false } }, { TZ: "Europe/Oslo" });
  service.simulator.control.raiseAlarm({ siteId: 1 });
  cli.configure({ source: { read: [{ name: "all", every: "1m" }], schedules: { alarms: "*/5 * * * * *" } } });
  const worker = await cli.run();
  onTestFinished(() => worker.signal("SIGKILL"));
  const raisedAlarms = () => events(cli, "--kind", "alarm-raised");
  await expect.poll(async () => (await raisedAlarms()).length).toBe(1);
  await expect.poll(async () => (await events(cli, "--kind", "tag-value", "--last", "3")).length).toBe(3);
  const jsonFollower = cli.start("events", "--follow", "--json", "--kind", "alarm-*", "--site", "6,1");
  const people = cli.start("events", "-f", "--kind", "alarm-*");
  const inUtc = cli.start("events", "-f", "--utc", "--kind", "alarm-*");
  for (const each of [jsonFollower, people, inUtc]) await expect.poll(() => each.printed().split("\n").length).toBe(2);
  service.simulator.control.raiseAlarm({ siteId: 6 });
  for (const each of [jsonFollower, people, inUtc]) await expect.poll(() => each.printed().split("\n").length).toBe(3);
  const [first, second] = jsonFollower.printed().trim().split("\n");
  const [a, b] = [first, second].map((line) => JSON.parse(line ?? "{}") as Line);
  expect([a?.siteid, b?.siteid]).toEqual(["1", "6"]);
  const priorityLetter = b?.priority ?? "";
  const ofPriority = await events(cli, "--priority", priorityLetter, "--since", "1h");
  expect(new Set(ofPriority.map(({ priority }) => priority))).toEqual(new Set([priorityLetter]));
  expect(people.printed()).toMatch(
    /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \+0[12]:00 {2}alarm-raised +site 1 {2}priority [A-Z] {2}\S/,
  );
  expect(inUtc.printed()).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z {2}alarm-raised /);
  await jsonFollower.stop();
  const all = await events(cli, "--since", "1h");
  expect(all.map(({ position }) => position)).toEqual(all.map(({ position }) => position).toSorted((x, y) => x - y));
  expect(all.length).toBeGreaterThan(10);
  expect(await events(cli, "--since", "2099-01-01T00:00:00Z")).toEqual([]);
  const [tag] = all.filter(({ type }) => type === "tag-value");
  const id = tag?.subject.split("/").at(-1) ?? "";
  const ofTag = await events(cli, "--since", "1h", "--tag", id);
  expect(ofTag.length).toBeGreaterThan(0);
  expect(new Set(ofTag.map(({ subject }) => subject))).toEqual(new Set([tag?.subject]));
  const ofSite = await events(cli, "--site", "6", "--last", "5");
  expect(ofSite.map(({ siteid }) => siteid)).toEqual(["6", "6", "6", "6", "6"]);
  const selectedEvents = await events(cli, "--kind", "site-added,alarm-raised", "--last", "100");
  expect(new Set(selectedEvents.map(({ type }) => type))).toEqual(new Set(["site-added", "alarm-raised"]));
  expect(await cli.refusal("events", "--priority", "high")).toMatch(/^78 Write a priority as one capital letter/);
});
