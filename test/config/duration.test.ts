import { describe, expect, test } from "vitest";
import { Duration, formatDuration, parseDuration } from "#src/duration.ts";

describe("durations in the configuration", () => {
  test.each([
    ["500ms", 500],
    ["30s", 30_000],
    ["5m", 300_000],
    ["24h", 86_400_000],
    ["7d", 604_800_000],
    ["1h30m", 5_400_000],
    ["0.5s", 500],
    ["0s", 0],
  ])("%s is %d milliseconds", (text, ms) => {
    expect(Duration.parse(text)).toBe(ms);
    expect(parseDuration(formatDuration(ms))).toBe(ms);
  });

  test.each(["", "5", "5 m", "-5m", "5min", "m", "1e3s", "5M", "∞"])(
    "%j is refused with an example",
    (text) => {
      expect(parseDuration(text)).toBeNull();
      expect(() => Duration.parse(text)).toThrow("Write a duration as 500ms, 30s, 5m, 24h or 7d.");
    },
  );
});
