import { StatementSync } from "node:sqlite";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { Retryable } from "#src/core/errors/errors.ts";
import type { PollTime } from "#src/engine/sync/live-tag-state.ts";
import { jobReports } from "#src/ui/status/job-reports.ts";
import { MINUTE, workerOverHttp } from "./worker-over-http.ts";

const SECOND = 1_000;
const HOUR = 60 * MINUTE;

/** Values of the statements that SQLite runs from now on. */
function watchStatements(): unknown[] {
  const boundValues: unknown[] = [];
  for (const name of ["all", "get", "iterate"] as const) {
    const originalMethod = StatementSync.prototype[name] as (...values: unknown[]) => unknown;
    const spy = vi.spyOn(StatementSync.prototype, name).mockImplementation(function (
      this: StatementSync,
      ...values: unknown[]
    ) {
      boundValues.push(...values);
      return originalMethod.apply(this, values) as never;
    } as never);
    onTestFinished(() => spy.mockRestore());
  }
  return boundValues;
}

test("/readyz and /metrics read no tags, values, alarms or history from the state", async () => {
  const { clock, metrics, readyz } = await workerOverHttp({
    simulator: { sites: [3], alarms: { recorded: true } },
    source: { read: [{ name: "all", every: "5m" }], history: [{ name: "all", resolution: "5m", every: "1h" }] },
  });
  await clock.advance(30 * MINUTE);
  const bound = watchStatements();
  const { status } = await readyz();
  const text = await metrics();
  const readSets = bound.filter((value) => /^(tag|value|alarm|history|quarantine|left-out)\//.test(String(value)));
  expect(readSets).toEqual([]);
  expect(bound).toContain("poll/main");
  expect(status).toBe(200);
  expect(text).toMatch(/^plenum_alarms_active\{source="main",site="3",priority="A"\} \d+$/m);
});

test("the metric of active alarms equals the report, also after alarms end and after a restart", async () => {
  const { clock, metrics, report, simulator, virtual } = await workerOverHttp({
    simulator: { sites: [3], alarms: { recorded: true } },
    source: { read: [], schedules: { alarms: "* * * * *", resolved_sweep: "* * * * *" } },
  });
  const compareCounts = async () => {
    const { sources } = await report();
    const reportCounts = Object.entries(sources[0]?.sites[0]?.alarms ?? {}).filter(([, count]) => count > 0);
    const counted = [...(await metrics()).matchAll(/^plenum_alarms_active\{.*priority="(.)"\} ([1-9]\d*)$/gm)];
    return { shown: reportCounts, counted: counted.map(([, priority, count]) => [priority, Number(count)]) };
  };
  const seenCounts = new Set<string>();
  const { control } = simulator;
  const ids: string[] = [];
  for (let step = 0; step < 6; step++) {
    if (step < 3) for (const siteId of [3, 3, 3]) ids.push(control.raiseAlarm({ siteId }));
    else for (const id of ids.splice(0, 2)) control.resolveAlarm(id);
    if (step === 4) await virtual.restart("stop");
    await clock.advance(10 * MINUTE);
    const { counted, shown } = await compareCounts();
    expect(counted.toSorted()).toEqual(shown.toSorted());
    seenCounts.add(JSON.stringify(shown));
  }
  expect(seenCounts.size, "different counts").toBe(5);
});

describe("the age of a poll", () => {
  const dueTimes = new Map([["alarms", (lastMs: number) => lastMs + 10 * MINUTE] as const]);
  const start: PollTime = { atMs: Date.parse("2026-06-01T12:00:00Z"), monotonicMs: 1_000 };
  const momentAfter = (ms: number, step = 0): PollTime => ({
    atMs: start.atMs + ms + step,
    monotonicMs: start.monotonicMs + ms,
  });
  const isLate = (stored: string | null, now: PollTime, inventoryPageMs: number | null = null) => {
    const poll = { lastSuccess: stored, lastAttempt: stored ?? "2026-06-01T12:00:00.000Z", problem: null };
    const polls = new Map(stored === null ? [] : [["alarms", poll] as const]);
    const [job] = jobReports({ polls, lastPolls: new Map(), dueTimes, started: start, inventoryPageMs, now });
    return job?.late;
  };

  test("continues from the stored time of the last poll after a restart", () => {
    const storedTime = "2026-06-01T11:54:00.000Z";
    expect(isLate(storedTime, momentAfter(4 * MINUTE))).toBe(false);
    expect(isLate(storedTime, momentAfter(4 * MINUTE + 1))).toBe(true);
    expect(isLate(storedTime, momentAfter(4 * MINUTE, 2 * HOUR)), "with a step of the wall clock").toBe(false);
  });

  test.each(["2016-01-01T00:00:00.000Z", "2026-06-01T11:50:00.000Z"])(
    "makes the poll late only three minutes after a restart when the last stored poll was %s",
    (stored) => {
      expect(isLate(stored, momentAfter(3 * MINUTE))).toBe(false);
      expect(isLate(stored, momentAfter(3 * MINUTE + 1))).toBe(true);
    },
  );

  test("is counted from the start of the worker when the stored time is in the future", () => {
    expect(isLate("2036-01-01T00:00:00.000Z", momentAfter(10 * MINUTE))).toBe(false);
    expect(isLate("2036-01-01T00:00:00.000Z", momentAfter(10 * MINUTE + 1))).toBe(true);
  });

  test("is counted from the last page of the first inventory when no poll has succeeded", () => {
    expect(isLate(null, momentAfter(10 * MINUTE + 1))).toBe(true);
    const pageMs = start.monotonicMs + 15 * MINUTE;
    expect(isLate(null, momentAfter(20 * MINUTE), pageMs)).toBe(false);
    expect(isLate(null, momentAfter(25 * MINUTE + 1), pageMs)).toBe(true);
  });
});

describe("the first inventory", () => {
  const startLongInventory = (isBroken: () => boolean = () => false) =>
    workerOverHttp({
      simulator: { sites: [1], alarms: { recorded: false } },
      source: {
        read: [{ name: "all", every: "1m" }],
        schedules: { alarms: "* * * * *", resolved_sweep: false },
        page_size: { others: 1 },
        quota: { list_requests_per_minute: 30 },
      },
      around: (transport) => (request, signal) => {
        if (isBroken() && request.path.includes("/tags")) throw new Retryable("cut off");
        return transport(request, signal);
      },
    });

  test("keeps the worker ready while its pages arrive, with a note in /readyz", async () => {
    const { clock, readyz } = await startLongInventory();
    await clock.advance(5 * MINUTE + 30 * SECOND);
    const readyState = await readyz();
    expect(readyState.reasons).toEqual([]);
    expect(readyState.status).toBe(200);
    expect(readyState.notes?.[0]).toMatch(/^main: Reading the building: \d+ of \d+ pages of tags, /);
  });

  test("does not keep the worker ready after its pages stop arriving", async () => {
    let isBroken = false;
    const { clock, readyz } = await startLongInventory(() => isBroken);
    await clock.advance(MINUTE);
    isBroken = true;
    await clock.advance(20 * MINUTE);
    const { notes, reasons } = await readyz();
    expect(notes).toBeUndefined();
    expect(reasons.map(({ subject }) => subject)).toContain("source/main/live");
  });
});
