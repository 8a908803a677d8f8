import { describe, expect, test } from "vitest";
import { isoUtc } from "#src/core/values/iso-utc.ts";
import {
  hasNoLog,
  newLedger,
  recordNoLog,
  recordPastRefusal,
  recordRefusal,
  retractNoLog,
  type SeriesRules,
} from "#src/engine/sync/history/ledger.ts";
import { rangesIn, storedRanges } from "#src/engine/sync/history/ledger-ranges.ts";
import type { StoredHistory } from "#src/engine/sync/snapshot.ts";

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const NOW_MS = Date.parse("2026-11-02T06:00:00Z");
const RULES: SeriesRules = {
  ...{ resolution: "5m", timeZone: "UTC", everyMs: 15 * MINUTE_MS },
  ...{ backfillMs: 72 * HOUR_MS, graceMs: 2 * MINUTE_MS, lookBackMs: 24 * HOUR_MS },
};
const LEDGER = newLedger(RULES, NOW_MS);
const RANGE = { fromMs: NOW_MS - 2 * HOUR_MS, toMs: NOW_MS - HOUR_MS };
const withPoints: StoredHistory = { ...LEDGER, spans: storedRanges([{ ...RANGE, why: "points" }]) };
const noLog = (ledger: StoredHistory) => recordNoLog(ledger, "no log", NOW_MS);

describe("hasNoLog", () => {
  test.each([
    ["false without a statement", LEDGER, false],
    ["true after one statement when the tag never had points", noLog(LEDGER), true],
    ["false after one statement when the tag had points", noLog(withPoints), false],
    ["true after two statements when the tag had points", noLog(noLog(withPoints)), true],
    [
      "false when the tag had points and the number of statements is unknown",
      { ...noLog(withPoints), refusal: null },
      false,
    ],
  ])("returns %s", (_case, ledger, expected) => {
    expect(hasNoLog(ledger)).toBe(expected);
  });
});

describe("a refused request of a tag without a log", () => {
  test("keeps the state and the number of statements, and is retried after ten minutes", () => {
    const before = noLog(LEDGER);
    const after = recordRefusal(before, "try later", NOW_MS);
    expect(after.state).toBe("no-log");
    expect(after.refusal?.times).toBe(1);
    expect(after.refusal?.againAt).toBe(isoUtc(NOW_MS + 10 * MINUTE_MS));
  });

  test("changes nothing when the ledger has no refusal", () => {
    const before = { ...noLog(LEDGER), refusal: null };
    expect(recordRefusal(before, "try later", NOW_MS)).toEqual(before);
    expect(noLog(before).refusal?.times).toBe(1);
  });
});

test("the first refusal of a range that was stored without a count counts as the first", () => {
  const stored = { ...LEDGER, spans: storedRanges([{ ...RANGE, why: "refused" }]) };
  const [refused] = rangesIn(recordPastRefusal(stored, RANGE, "not now", NOW_MS).spans);
  expect(refused).toMatchObject({ ...RANGE, why: "refused", times: 1 });
});

test("a retracted statement of a total moves the watermark back to the range, and of a point series does not", () => {
  const ledger: StoredHistory = {
    ...LEDGER,
    watermark: isoUtc(NOW_MS),
    spans: storedRanges([{ ...RANGE, why: "no-log", at: isoUtc(NOW_MS) }]),
  };
  expect(retractNoLog(ledger, isoUtc(NOW_MS), true).watermark).toBe(isoUtc(RANGE.fromMs));
  expect(retractNoLog(ledger, isoUtc(NOW_MS), false).watermark).toBe(isoUtc(NOW_MS));
});
