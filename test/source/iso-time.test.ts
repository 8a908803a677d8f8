import { describe, expect, it } from "vitest";
import { formatRequestTime, normalizeTime } from "#src/engine/source/service-records.ts";

describe("normalizeTime: times of the service", () => {
  const NOON = [
    "T12:00:00Z",
    "T12:00:00z",
    "t12:00:00z",
    "T12:00:00+00:00",
    "T12:00:00-00:00",
    " 12:00:00Z",
    "T12:00Z",
  ];
  const TEN = [
    "T12:00:00+02:00",
    "T12:00:00+0200",
    "T12:00:00+02",
    "T12:00:00 +02:00",
    " 12:00:00+02:00",
    "T12:00+02:00",
  ];
  it.each<[raw: string, text: string]>([
    ...NOON.map((time) => [`2026-06-01${time}`, "2026-06-01T12:00:00.000Z"] satisfies [string, string]),
    ...TEN.map((time) => [`2026-06-01${time}`, "2026-06-01T10:00:00.000Z"] satisfies [string, string]),
    ["2026-06-01T12:00:00.5Z", "2026-06-01T12:00:00.500Z"],
    ["2026-06-01T12:00:00,5Z", "2026-06-01T12:00:00.500Z"],
    ["2026-06-01T12:00:00.123456Z", "2026-06-01T12:00:00.123Z"],
    ["2026-06-01T12:00:00.123456789Z", "2026-06-01T12:00:00.123Z"],
    ["2026-06-01T12:00:00-03:30", "2026-06-01T15:30:00.000Z"],
    ["2026-06-01T12:00:00+05:45", "2026-06-01T06:15:00.000Z"],
    ["2026-06-01T00:00:00+14:00", "2026-05-31T10:00:00.000Z"],
    ["2026-01-01T00:30:00+01:00", "2025-12-31T23:30:00.000Z"],
    ["20260601T120000Z", "2026-06-01T12:00:00.000Z"],
    ["20260601T120000+0200", "2026-06-01T10:00:00.000Z"],
    ["2026-W23-1T12:00:00Z", "2026-06-01T12:00:00.000Z"],
    ["2026-152T12:00:00Z", "2026-06-01T12:00:00.000Z"],
    ["2026-06-01T24:00:00Z", "2026-06-02T00:00:00.000Z"],
    ["2026-06-01T12:00:00+02:00[Europe/Stockholm]", "2026-06-01T10:00:00.000Z"],
    [" 2026-06-01T12:00:00Z ", "2026-06-01T12:00:00.000Z"],
    ["2024-02-29T12:00:00Z", "2024-02-29T12:00:00.000Z"],
    ["2016-12-31T23:59:60Z", "2017-01-01T00:00:00.000Z"],
    ["2016-12-31T23:59:60.5Z", "2017-01-01T00:00:00.000Z"],
    ["2017-01-01T00:59:60+01:00", "2017-01-01T00:00:00.000Z"],
  ])("converts the time %s to %s", (raw, text) => {
    expect(normalizeTime(raw)).toEqual({ text, isTime: true });
  });

  it.each(["2026-06-01T12:00:00", "2026-06-01T12:00:00.5", "2026-06-01 12:00:00", "2026-06-01", "20260601T120000"])(
    "%s has no offset and stays unchanged",
    (raw) => {
      expect(normalizeTime(raw)).toEqual({ text: raw, isTime: true });
    },
  );

  it.each([
    "",
    "now",
    "2026-02-30T12:00:00Z",
    "2026-13-01T12:00:00Z",
    "2026-06-01T25:00:00Z",
    "1780315200",
    "0000-00-00 00:00:00",
    "12:00:00 on Monday",
  ])("keeps %s unchanged and reports that it is not a time", (raw) => {
    expect(normalizeTime(raw)).toEqual({ text: raw, isTime: false });
  });
});

describe("formatRequestTime: times of a history request end with Z and have whole seconds", () => {
  it.each([
    ["2026-06-01T12:00:00Z", "2026-06-01T12:00:00Z"],
    ["2026-06-01T12:00:00.000Z", "2026-06-01T12:00:00Z"],
    ["2026-06-01T12:00:00.999Z", "2026-06-01T12:00:00Z"],
    ["2026-06-01T12:00:00+00:00", null],
    ["2026-06-01T12:00:00", null],
    ["2026-02-30T12:00:00Z", null],
    ["2026-06-01", null],
  ])("formats the time %s for a history request as %s", (iso, text) => {
    expect(formatRequestTime(iso)).toBe(text);
  });
});
