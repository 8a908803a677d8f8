import { DateTime, IANAZone } from "luxon";
import { describe, expect, test } from "vitest";
import { RESOLUTIONS } from "#src/core/model/building.ts";
import {
  bucketBefore,
  bucketEnd,
  bucketStart,
  formatUtc,
  localDayNumber,
  subtractCalendarTime,
} from "#src/engine/sync/history/buckets.ts";

const ZONES = [
  ...["UTC", "Europe/Stockholm", "America/New_York", "America/Sao_Paulo", "Australia/Lord_Howe", "Pacific/Apia"],
  ...["Africa/Casablanca", "Asia/Kathmandu", "America/St_Johns", "Asia/Beirut"],
];
const HOUR_MS = 3_600_000;
const DAYS_AROUND = { "5m": 0.1, "1h": 0.5, "1d": 3, "1w": 15, "1mo": 40 } as const;
const at = (time: string) => Date.parse(time);
type Resolution = (typeof RESOLUTIONS)[number];
const start = (time: string, timeZone: string, resolution: Resolution = "1d") =>
  formatUtc(bucketStart(at(time), { resolution, timeZone }));
const end = (time: string, timeZone: string, resolution: Resolution = "1d") =>
  formatUtc(bucketEnd(at(time), { resolution, timeZone }));

function changes(zone: string, fromYear: number, toYear: number): readonly number[] {
  const zoneRules = IANAZone.create(zone);
  const changeTimes: number[] = [];
  for (let ms = Date.UTC(fromYear, 0, 1); ms < Date.UTC(toYear, 0, 1); ms += 24 * HOUR_MS)
    if (zoneRules.offset(ms) !== zoneRules.offset(ms + 24 * HOUR_MS)) changeTimes.push(ms);
  return changeTimes;
}

describe("calendar days of a time zone", () => {
  test.each(ZONES)("calendar days in %s agree with luxon around every clock change", (zone) => {
    for (const changeMs of changes(zone, 2024, 2028)) {
      for (let ms = changeMs - 72 * HOUR_MS; ms < changeMs + 72 * HOUR_MS; ms += 47 * 60_000) {
        const local = DateTime.fromMillis(ms, { zone });
        const dayNumber = DateTime.utc(local.year, local.month, local.day).toMillis() / (24 * HOUR_MS);
        expect(localDayNumber(ms, zone)).toBe(dayNumber);
        expect(subtractCalendarTime(ms, 24 * HOUR_MS, zone)).toBe(local.minus({ days: 1 }).toMillis());
        expect(subtractCalendarTime(ms, 36 * HOUR_MS, zone)).toBe(local.minus({ days: 1 }).toMillis() - 12 * HOUR_MS);
      }
    }
  });

  test("subtracting an infinite length from a time gives minus infinity", () => {
    expect(subtractCalendarTime(0, Number.POSITIVE_INFINITY, "UTC")).toBe(Number.NEGATIVE_INFINITY);
  });
});

describe("history buckets in a time zone with clock changes", () => {
  test.each<[string, Resolution, string, string, string, string]>([
    ["a day of 23 hours", "1d", "Europe/Stockholm", "2027-03-28T12:00", "2027-03-27T23:00", "2027-03-28T22:00"],
    ["a day of 25 hours", "1d", "Europe/Stockholm", "2027-10-31T12:00", "2027-10-30T22:00", "2027-10-31T23:00"],
    ["the day before a skipped day", "1d", "Pacific/Apia", "2011-12-30T09:59", "2011-12-29T10:00", "2011-12-30T10:00"],
    ["the day after a skipped day", "1d", "Pacific/Apia", "2011-12-30T10:00", "2011-12-30T10:00", "2011-12-31T10:00"],
    ["a day without midnight", "1d", "America/Sao_Paulo", "2018-11-04T12:00", "2018-11-04T03:00", "2018-11-05T02:00"],
    ["an hour of 30 minutes", "1h", "Australia/Lord_Howe", "2027-04-03T15:10", "2027-04-03T15:00", "2027-04-03T15:30"],
    ["a week from Monday", "1w", "Europe/Stockholm", "2026-11-01T12:00", "2026-10-25T23:00", "2026-11-01T23:00"],
    ["a month from the first", "1mo", "Europe/Stockholm", "2026-11-15T12:00", "2026-10-31T23:00", "2026-11-30T23:00"],
  ])("finds the start and the end of %s", (_what, resolution, zone, time, from, to) => {
    const actualEnds = [start(`${time}:00Z`, zone, resolution), end(`${from}:00Z`, zone, resolution)];
    expect(actualEnds).toEqual([`${from}:00Z`, `${to}:00Z`]);
  });

  test.each([
    ["2026-11-02T18:00:00Z", "1h", "Asia/Kathmandu", "2026-11-02T19:00:00Z"],
    ["2026-11-02T00:00:00Z", "1d", "Asia/Kathmandu", "2026-11-03T00:00:00Z"],
    ["2026-10-25T00:00:00Z", "1d", "Europe/Stockholm", "2026-10-26T01:00:00Z"],
    ["2026-11-01T00:00:00Z", "1w", "Europe/Stockholm", "2026-11-08T00:00:00Z"],
    ["2026-11-01T00:00:00Z", "1mo", "Asia/Kathmandu", "2026-12-01T00:00:00Z"],
  ] as const)("a bucket that the service begins at %s, of %s in %s, ends at %s", (time, resolution, zone, to) => {
    expect(end(time, zone, resolution)).toBe(to);
  });
});

describe.each(ZONES)("buckets in %s around clock changes from 2000 to 2040", (zone) => {
  // Every fourth change: the kinds of changes repeat from year to year.
  const all = changes(zone, 2000, 2040).filter((_, i) => i % 4 === 0 || zone === "Pacific/Apia");
  const moments = all.length === 0 ? [at("2027-03-28T00:00:00Z")] : all;

  test.each(RESOLUTIONS)("buckets of %s follow each other without gap or overlap", (resolution) => {
    const aroundMs = DAYS_AROUND[resolution] * 24 * HOUR_MS;
    const bucketRules = { resolution, timeZone: zone };
    for (const changeMs of moments) {
      let start = bucketStart(changeMs - aroundMs, bucketRules);
      while (start < changeMs + 24 * HOUR_MS + aroundMs) {
        const end = bucketEnd(start, bucketRules);
        const neighbours = [
          end > start,
          bucketStart(end, bucketRules),
          bucketStart(end - 60_000, bucketRules),
          bucketBefore(end, bucketRules),
        ];
        if (neighbours.join() !== [true, end, start, start].join())
          expect.fail(`${formatUtc(start)} to ${formatUtc(end)}: ${neighbours.join(" ")}`);
        start = end;
      }
    }
  });
});
