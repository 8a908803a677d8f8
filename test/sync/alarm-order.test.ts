import { afterEach, expect, test } from "vitest";
import type { AlarmFact } from "#src/event.ts";
import { createTrial, type ListChange, type TrialSync } from "./trial-sync.ts";

/** Two lists of alarms that do not agree, and clocks that are set, through the whole of the polling. */

const MINUTE = 60_000;
let trial: TrialSync;

afterEach(async () => {
  await trial.stop();
});

const isAlarms = (path: string) => path.endsWith("/alarms");
const told = (id: string) =>
  trial.store.events
    .filter(({ type, data }) => type.startsWith("alarm-") && (data as AlarmFact).alarm.id === id)
    .map(({ type }) => type.replace("alarm-", ""));
/** Every record of every list of alarms, bent. */
const bent = (bend: (attributes: Record<string, unknown>, status: string | null) => void): ListChange => {
  return (list, path, query) => {
    if (isAlarms(path)) for (const { attributes } of list.data) bend(attributes, query.get("status"));
  };
};
const moved = (time: string, byMs: number) => new Date(Date.parse(time) + byMs).toISOString();

async function started(): Promise<string> {
  trial = createTrial();
  const id = trial.simulator.control.raiseAlarm({ siteId: 3 });
  await trial.start();
  await trial.clock.advance(MINUTE);
  return id;
}

test("an alarm is told again after the service's clock, which ran ahead, was set right", async () => {
  trial = createTrial();
  const id = trial.simulator.control.raiseAlarm({ siteId: 3 });
  const ahead = bent((attributes) => {
    for (const name of ["triggered_at", "resolved_at"])
      if (typeof attributes[name] === "string") attributes[name] = moved(attributes[name], 60 * MINUTE);
  });
  trial.rewriteLists(ahead);
  await trial.start();
  await trial.clock.advance(MINUTE);
  trial.simulator.control.resolveAlarm(id);
  await trial.clock.advance(3 * MINUTE);
  expect(told(id)).toEqual(["raised", "resolved"]);
  trial.rewriteLists(null);
  await trial.clock.advance(5 * MINUTE);
  trial.simulator.control.retriggerAlarm(id);
  await trial.clock.advance(MINUTE);
  expect(told(id)).toEqual(["raised", "resolved", "raised"]);
  trial.simulator.control.resolveAlarm(id);
  await trial.clock.advance(5 * MINUTE);
  expect(told(id)).toEqual(["raised", "resolved", "raised", "resolved"]);
});

test("an alarm ends, though the list of active ones shows its time with milliseconds and the other without", async () => {
  trial = createTrial();
  trial.rewriteLists(
    bent((attributes, status) => {
      if (status === "active") attributes.triggered_at = moved(String(attributes.triggered_at), 123);
    }),
  );
  const id = trial.simulator.control.raiseAlarm({ siteId: 3 });
  await trial.start();
  await trial.clock.advance(MINUTE);
  trial.simulator.control.resolveAlarm(id);
  await trial.clock.advance(10 * MINUTE);
  expect(told(id)).toEqual(["raised", "resolved"]);
});

test("the time of an open alarm is corrected: it is the same alarm, and ends", async () => {
  const id = await started();
  trial.rewriteLists(
    bent((attributes) => {
      attributes.triggered_at = moved(String(attributes.triggered_at), -3_000);
    }),
  );
  await trial.clock.advance(5 * MINUTE);
  expect(told(id)).toEqual(["raised", "changed"]);
  trial.simulator.control.resolveAlarm(id);
  await trial.clock.advance(5 * MINUTE);
  expect(told(id)).toEqual(["raised", "changed", "resolved"]);
});

test("an end is told once, though the list of resolved alarms goes on showing it after the alarm came back", async () => {
  const id = await started();
  trial.simulator.control.resolveAlarm(id);
  await trial.clock.advance(3 * MINUTE);
  const triggeredAt = trial.simulator.truth.alarms.find(id, trial.clock.now())?.triggeredAtMs ?? 0;
  let old: unknown;
  trial.rewriteLists((list, path, query) => {
    if (!isAlarms(path)) return;
    const shown = list.data.find((one) => one.id === id);
    if (query.get("status") === "active") {
      if (shown !== undefined) shown.attributes.triggered_at = new Date(triggeredAt).toISOString();
    } else if (shown?.attributes.status === "resolved") old ??= structuredClone(shown);
    else if (old !== undefined && query.get("status") === "resolved")
      return { ...list, data: [...list.data, old], meta: { ...list.meta, total: list.data.length + 1 } };
  });
  await trial.clock.advance(3 * MINUTE);
  trial.simulator.control.retriggerAlarm(id);
  await trial.clock.advance(20 * MINUTE);
  expect(told(id).filter((kind) => kind !== "changed")).toEqual(["raised", "resolved", "retriggered"]);
});

test("nothing comes back because the list of active alarms lags behind the resolved one", async () => {
  const id = await started();
  let old: unknown;
  trial.rewriteLists((list, path, query) => {
    if (!isAlarms(path) || query.get("status") !== "active") return;
    const shown = list.data.find((one) => one.id === id);
    if (shown !== undefined) old = structuredClone(shown);
    else return { ...list, data: [...list.data, old], meta: { ...list.meta, total: list.data.length + 1 } };
  });
  await trial.clock.advance(MINUTE);
  trial.simulator.control.resolveAlarm(id);
  await trial.clock.advance(4 * MINUTE);
  trial.rewriteLists(null);
  await trial.clock.advance(5 * MINUTE);
  expect(told(id)).toEqual(["raised", "resolved"]);
});
