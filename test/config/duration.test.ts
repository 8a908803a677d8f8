import { describe, expect, test } from "vitest";
import { Duration, formatDuration, parseDuration } from "#src/core/values/duration.ts";

describe("a duration in the configuration", () => {
  test.each([
    ["500ms", 500],
    ["7d", 604_800_000],
    ["1h30m", 5_400_000],
    ["0.5s", 500],
    ["0s", 0],
    ["1 h 30 min", 5_400_000],
    ["2w", 1_209_600_000],
    ["1y", 31_536_000_000],
    ["3 days", 259_200_000],
    ["30 Seconds", 30_000],
    ["24H", 86_400_000],
  ])("%s is %d milliseconds", (text, ms) => {
    expect(Duration.parse(text)).toBe(ms);
    expect(parseDuration(formatDuration(ms))).toBe(ms);
  });

  test.each([
    ["", "Write a duration as 500ms, 30s, 5m, 24h, 7d, 2w or 1y."],

    ["1e3s", "Write a duration as 500ms, 30s, 5m, 24h, 7d, 2w or 1y."],

    ["5 parsecs", "Write a duration as 500ms, 30s, 5m, 24h, 7d, 2w or 1y."],
    ["5", "Write 5s: a duration needs its unit (ms, s, m, h, d, w or y)."],
    ["-5m", "A duration is not negative; write it as 30s, 5m, 24h or 7d."],
    ["5M", "Write months as days, such as 30d (and minutes as 5m): they are not all of one length."],
    ["1mo", "Write months as days, such as 30d (and minutes as 5m): they are not all of one length."],
    ["1,5h", "Write 1.5h, with a point."],
    ["PT1H30M", "Write 1h30m."],
  ])("rejects %j and states the correct form", (text, said) => {
    expect(parseDuration(text)).toBeNull();
    expect(() => Duration.parse(text)).toThrow(said);
  });
});
