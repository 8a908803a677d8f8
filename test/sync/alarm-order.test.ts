import { expect, test } from "vitest";
import { editRecords, emitted, harness, MINUTE, openHarness, shiftTime, storedAlarm, TOKEN } from "./alarm-harness.ts";
import { ALARMS_ONLY } from "./sync-harness.ts";

const HOURLY_SCHEDULES = { ...ALARMS_ONLY.schedules, alarms: "0 * * * *", resolved_sweep: "10 * * * *" };
const HOURLY = { ...ALARMS_ONLY, schedules: HOURLY_SCHEDULES };

async function shortAlarm(siteId = 3): Promise<string> {
  const id = harness.control.raiseAlarm({ siteId });
  await harness.clock.advance(2_000);
  harness.control.resolveAlarm(id);
  return id;
}

test("the search in the list of resolved alarms finds a short alarm although another alarm has an end in the future", async () => {
  openHarness();
  const odd = harness.control.raiseAlarm({ siteId: 3 });
  harness.rewriteLists(
    editRecords((attributes, _status, id) => {
      const byMs = id === odd ? 600 * MINUTE : -2 * MINUTE;
      if (attributes.resolved_at !== null) attributes.resolved_at = shiftTime(attributes.resolved_at, byMs);
      if (id !== odd) attributes.triggered_at = shiftTime(attributes.triggered_at, byMs);
    }),
  );
  await harness.start();
  await harness.clock.advance(MINUTE);
  harness.control.resolveAlarm(odd);
  await harness.clock.advance(4 * MINUTE + 3_000);
  const short = await shortAlarm();
  await harness.clock.advance(10 * MINUTE);
  expect(emitted(odd)).toEqual(["raised", "resolved"]);
  expect(emitted(short)).toEqual(["raised", "resolved"]);
});

test("emits a short alarm once although its stated end is three hours before its start", async () => {
  openHarness();
  await harness.start();
  await harness.clock.advance(5 * MINUTE + 3_000);
  const short = await shortAlarm();
  harness.rewriteLists(
    editRecords((attributes) => {
      if (attributes.resolved_at !== null)
        attributes.resolved_at = shiftTime(String(attributes.resolved_at), -180 * MINUTE);
    }),
  );
  await harness.clock.advance(10 * MINUTE);
  expect(emitted(short)).toEqual(["raised", "resolved"]);
  await harness.clock.advance(300 * MINUTE);
  expect(emitted(short)).toEqual(["raised", "resolved"]);
});

test.each([
  ["a missing time", () => null],
  ["a time without a UTC offset", (time: string) => shiftTime(time, 0).slice(0, 19)],
])("emits a short alarm once if its end has %s, and no other alarm ends for ten days", async (_what, stated) => {
  openHarness({ sync: HOURLY });
  await harness.start();
  await harness.clock.advance(90 * MINUTE);
  const short = await shortAlarm();
  harness.rewriteLists(
    editRecords((attributes) => {
      if (attributes.status === "resolved") attributes.resolved_at = stated(String(attributes.resolved_at));
    }),
  );
  await harness.clock.advance(60 * MINUTE);
  const ended = await storedAlarm(short);
  expect(emitted(short)).toEqual(["raised", "resolved"]);
  await harness.clock.advance(10 * 24 * 60 * MINUTE);
  expect(await storedAlarm(short)).toEqual(ended);
});

test("when the token sees a site again, emits each alarm missed meanwhile once, and no other alarm again", async () => {
  const DAY = 24 * 60 * MINUTE;
  openHarness({ sync: HOURLY });
  const { control } = harness.simulator;
  await harness.start();
  await harness.clock.advance(90 * MINUTE);
  const elsewhere = await shortAlarm(4);
  await harness.clock.advance(DAY);
  const latest = await shortAlarm();
  await harness.clock.advance(90 * MINUTE);
  const ended = await storedAlarm(latest);
  control.changeToken(TOKEN, { sites: [2, 4] });
  const hidden = await shortAlarm();
  await harness.clock.advance(DAY);
  await shortAlarm(4);
  await harness.clock.advance(9 * DAY);
  expect(await storedAlarm(elsewhere)).toBeUndefined();
  control.changeToken(TOKEN, { sites: "all" });
  await harness.clock.advance(120 * MINUTE);
  expect(emitted(hidden)).toEqual(["raised", "resolved"]);
  expect(await storedAlarm(elsewhere)).toBeUndefined();
  expect(emitted(latest)).toEqual(["raised", "resolved"]);
  expect((await storedAlarm(latest)) ?? ended).toEqual(ended);
});
