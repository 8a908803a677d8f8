import { describe, expect, test } from "vitest";
import { dateToDay } from "#src/engine/sync/completeness/complete-days.ts";
import { countSeriesDay, type ServiceMessage } from "#src/engine/sync/completeness/daily-bucket-counts.ts";
import { createLedger } from "#src/engine/sync/history/ledger.ts";
import type { StoredLedger, StoredRange } from "#src/engine/sync/stored-documents.ts";

const NOW = Date.parse("2026-11-05T12:01:00Z");
const SERIES_RULES = {
  ...{ resolution: "5m" as const, timeZone: "UTC", everyMs: 3_600_000 },
  ...{ backfillMs: 0, graceMs: 60_000, lookBackMs: 86_400_000 },
};
const MESSAGE: ServiceMessage = { said: "The tag is locked.", at: "2026-11-05T11:00:00.000Z" };
const REFUSAL = { said: "The tag is locked.", at: MESSAGE.at ?? "", times: 3, againAt: "2026-11-05T13:00:00.000Z" };

function ledger(more: Partial<StoredLedger> = {}): StoredLedger {
  return {
    ...createLedger(SERIES_RULES, NOW),
    state: "following",
    ...{ since: "2026-11-03T06:00:00.000Z", wished: "2026-11-03T06:00:00.000Z" },
    watermark: "2026-11-05T12:00:00.000Z",
    spans: [span("2026-11-03T06:00", "2026-11-05T12:00")],
    ...more,
  };
}

function span(from: string, to: string, more: Partial<StoredRange> = {}): StoredRange {
  return { from: `${from}:00.000Z`, to: `${to}:00.000Z`, why: "points", ...more };
}

function account(
  held: StoredLedger,
  date: number,
  count?: { readonly had: number; readonly null: number },
  placed: { readonly outOfSight?: "site" | "tag" } = {},
) {
  const day = dateToDay(`2026-11-0${date}`);
  return countSeriesDay({ ledger: held, rules: SERIES_RULES, siteTag: placed }, day, count, NOW);
}

describe("the completeness of a history series for one UTC day", () => {
  test("counts values, nulls and absent buckets of a fetched day", () => {
    expect(account(ledger(), 4, { had: 200, null: 8 })).toEqual({
      ...{ expected: 288, had: 200, null: 8, absent: 80, withoutLog: 0, refused: 0, pending: 0, notWanted: 0 },
      ...{ why: null, noLog: null, refusal: null },
    });
    expect(account(ledger(), 4)).toMatchObject({ expected: 288, had: 0, null: 0, absent: 288 });
  });

  test("counts buckets without a log and refused buckets, each with the last message", () => {
    const olderMessage = { said: "older", at: "2026-11-04T01:00:00.000Z" };
    const stored = ledger({
      spans: [
        span("2026-11-04T00:00", "2026-11-04T01:00", { why: "no-log", ...olderMessage }),
        span("2026-11-04T01:00", "2026-11-04T03:00", { why: "no-log" }),
        span("2026-11-04T03:00", "2026-11-04T04:00", { why: "refused", ...olderMessage }),
        span("2026-11-04T04:00", "2026-11-04T06:00", { why: "refused", said: "The tag is locked.", at: REFUSAL.at }),
        span("2026-11-04T06:00", "2026-11-05T12:00"),
      ],
    });
    expect(account(stored, 4, { had: 216, null: 0 })).toMatchObject({
      ...{ expected: 288, had: 216, withoutLog: 36, refused: 36, pending: 0 },
      ...{ noLog: { said: null, at: null }, refusal: MESSAGE },
    });
  });

  test("counts pending buckets as buckets without a log when the series has no log", () => {
    const stored = ledger({ state: "no-log", spans: [span("2026-11-04T00:00", "2026-11-04T06:00")] });
    expect(account(stored, 4, { had: 72, null: 0 })).toMatchObject({
      ...{ expected: 288, had: 72, withoutLog: 216, pending: 0 },
      ...{ noLog: { said: null, at: null }, why: null },
    });
    expect(account({ ...stored, refusal: REFUSAL }, 4)).toMatchObject({ withoutLog: 216, noLog: MESSAGE });
  });

  test("counts refused buckets after the last fetched time as refused, and earlier ones as pending", () => {
    const stored = ledger({
      refusal: REFUSAL,
      watermark: "2026-11-04T12:00:00.000Z",
      spans: [span("2026-11-04T06:00", "2026-11-04T12:00")],
    });
    expect(account(stored, 4, { had: 72, null: 0 })).toMatchObject({
      ...{ expected: 288, had: 72, refused: 144, pending: 72, refusal: MESSAGE, why: "behind" },
    });
    expect(account(stored, 5)).toMatchObject({ expected: 288, refused: 144, pending: 144, refusal: MESSAGE });
    expect(account(stored, 3)).toMatchObject({ expected: 216, refused: 0, pending: 216, refusal: null });
    expect(account({ ...stored, state: "unproven" }, 3)).toMatchObject({ refused: 216, pending: 0, refusal: MESSAGE });
  });
});

describe("the reason for pending buckets", () => {
  const ledgerUntil = (watermark: string) => ledger({ watermark: `2026-11-0${watermark}:00.000Z`, spans: [] });

  test.each<[string, StoredLedger, number, string]>([
    ["it is not known yet whether there is a log", { ...ledgerUntil("3T06:00"), state: "unproven" }, 4, "unproven"],
    ["following is past the day", ledgerUntil("5T00:00"), 4, "backfill"],
    ["following has not reached the day", ledgerUntil("4T23:55"), 4, "behind"],
    ["the day is not over", ledgerUntil("5T12:00"), 5, "open"],
    ["the day has not begun for the series", ledgerUntil("5T12:00"), 6, "open"],
  ])("states why buckets are pending when %s", (_, held, date, why) => {
    expect(account(held, date).why).toBe(why);
  });
});
