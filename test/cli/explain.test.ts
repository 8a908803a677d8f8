import { expect, test } from "vitest";
import { describeTag, type TagExplanation } from "#src/cli/watching/explain-tag-or-alarm-command.ts";
import { QUIET_SITE, servedHarness, WRITING } from "./plenum.ts";

test("plenum explain prints the requests, due times, sinks and commands of a tag and of an alarm", async () => {
  const { service, cli } = await servedHarness(QUIET_SITE);
  const read = [{ name: "comfort", every: "1m" }];
  const history = [{ name: "log", resolution: "5m", backfill: "1d" }];
  cli.configure({ source: { spread: "0s", read, history }, commands: WRITING });
  expect(await cli.refusal("explain", "10169")).toBe(
    "78 There is no state in state yet. Start the worker first, or name the folder that it uses.",
  );

  const alarmId = service.simulator.control.raiseAlarm({ siteId: 6 });
  const worker = await cli.run();
  const explained = () => cli.json<TagExplanation>("explain", "10169");
  await expect.poll(async () => (await cli.plenum("status", "--json")).stdout).toContain('"tags":8');
  await expect.poll(async () => (await explained()).value).not.toBeNull();
  await expect.poll(async () => (await explained()).history).toHaveLength(1);
  const low = await cli.plenum("write", "10169", "12", "--id", "low");
  expect(low.code).toBe(1);
  const asJson = await explained();
  expect(asJson).toMatchObject({
    source: "main",
    tag: { id: "10169" },
    siteId: 6,
    missingSince: null,
    quarantine: null,
    work: { live: { className: "comfort", targetSeconds: 60 } },
    sinks: [{ sink: "files", last: expect.stringMatching(/settled|waiting/) }],
    commands: [{ commandId: "low", outcome: "rejected" }],
  });
  expect(asJson.work?.requests.length).toBeGreaterThan(0);
  const { code, stdout } = await cli.plenum("explain", "10169");
  expect(code).toBe(0);
  for (const line of [
    /^tag 10169 .+, site 6 of main$/m,
    /^Value\n {2}\S+ \(good\) at 20\S+ \S+ [+-]\d\d:\d\d( \([^)]+\))?$/m,
    /^Next reading\n {2}(Due by 20\S+ \S+ [+-]\d\d:\d\d( \([^)]+\))?, every 60 s at the latest\.\n {2})?Class comfort has the interval 1m\.$/m,
    /^ {2}20\S+ \S+ [+-]\d\d:\d\d( \([^)]+\))? {2}request \d+, read \(live\), with 7 others, \d+ ms with waiting$/m,
    /^ {2}It was in \d+ of the last \d+ tag requests \(since 20\S+ \S+ [+-]\d\d:\d\d( \([^)]+\))?\): \d+\.\d\d of them are its share\.$/m,
    /^ {2}10169 5m: /m,
    /^Sinks\n {2}files: (has the last event|still waits)/m,
    /^Last commands\n {2}low: 12 ended as rejected: /m,
  ]) {
    expect(stdout).toMatch(line);
  }

  const alarm = await cli.plenum("explain", alarmId);
  expect(alarm.stdout).toMatch(new RegExp(`^alarm ${alarmId} .+, priority [ABC], site .+ of main\n {2}active since `));
  expect(alarm.stdout).toMatch(/^Told, newest first\n {2}20\S+ \S+ [+-]\d\d:\d\d( \([^)]+\))? {2}alarm-raised$/m);
  expect(alarm.stdout).toMatch(
    /^Polls\n {2}alarms: last at 20\S+ \S+ [+-]\d\d:\d\d( \([^)]+\))?, next at 20\S+ \S+ [+-]\d\d:\d\d( \([^)]+\))?$/m,
  );
  expect(await cli.json("explain", alarmId)).toMatchObject({
    held: { state: "active" },
    told: [{ type: "alarm-raised", late: false }],
    sinks: [{ sink: "files" }],
  });

  expect(await cli.refusal("explain", "1016")).toBe(
    "78 The state knows neither a tag nor an alarm 1016 of main. `plenum alarms` and `plenum tags` list what there is.",
  );

  await worker.stop();
  const withoutWorker = await cli.plenum("explain", "10169");
  expect(withoutWorker.code).toBe(0);
  expect(withoutWorker.stdout).toMatch(/^Next reading\n {2}No worker is running; nothing is due\.$/m);
  expect(withoutWorker.stdout).toMatch(/^Last requests\n {2}Only a running worker remembers them\.$/m);
  expect(withoutWorker.stdout).toMatch(/^ {2}files: has the last event/m);
  expect((await explained()).work).toBeNull();
});

const AT = "2026-11-24T12:00:00.000Z";
const explained: TagExplanation = {
  source: "main",
  tag: { id: "7", displayName: "Supply", description: null, unit: "°C" },
  siteId: 1,
  missingSince: null,
  value: { value: true, quality: "uncertain", time: AT, told: "this" },
  quarantine: null,
  leftOut: null,
  work: null,
  worker: "none",
  history: [],
  holes: [],
  sinks: [],
  commands: [],
};

const valueLines = (more: Partial<TagExplanation>) => {
  const allLines = describeTag({ ...explained, ...more });
  return allLines.slice(allLines.indexOf("Value") + 2, allLines.indexOf("Next reading") - 1);
};

test("plenum explain prints the text of the response for an unreadable value", () => {
  const leftOut = { since: AT, kind: "unreadable", reason: 'Its value is the text "--".' } as const;
  expect(valueLines({ leftOut })).toEqual([`  Unreadable in the replies since ${AT}: Its value is the text "--".`]);
});

test.each([
  ["unit", "  uncertain: it is a boolean, and °C is a unit of numbers."],
  ["changed", "  uncertain: the values before were of another type, until a further reading confirms this one."],
] as const)("`explain` gives the reason for a value of uncertain type: %s", (typeDoubt, line) => {
  const value = { value: true, quality: "uncertain", time: AT, told: "this", typeDoubt } as const;
  expect(valueLines({ value })).toEqual([line]);
});
