import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { chooseMessagePhrases } from "#connectors/shared/receiver/message-texts.ts";
import { drawSparkline, formatTimeSeriesLine } from "#connectors/shared/receiver/time-series-text.ts";
import type { TimeSeriesPoint } from "#src/core/connector.ts";
import type { TagValue } from "#src/core/model/building.ts";
import { TAG } from "../sample-events.ts";

const MINUTE = 60_000;
const TO = Date.parse("2026-11-02T06:15:00Z");
const TIME_RANGE = { fromMs: TO - 180 * MINUTE, toMs: TO };
const ENGLISH = chooseMessagePhrases("en", {});

function samplesEvery(minutes: number, values: readonly TagValue[]): readonly TimeSeriesPoint[] {
  return values.map((value, n) => ({ atMs: TO - (values.length - 1 - n) * minutes * MINUTE, value }));
}

const draw = (minutes: number, ...values: readonly TagValue[]) =>
  drawSparkline(samplesEvery(minutes, values), TIME_RANGE);
const formatLine = (points: readonly TimeSeriesPoint[], tag = TAG, words = ENGLISH) =>
  formatTimeSeriesLine({ tag, points }, TIME_RANGE, words);

describe("a sparkline", () => {
  test("rises from the lowest block to the highest", () => {
    const risingValues = Array.from({ length: 181 }, (_, n) => n);
    expect(drawSparkline(samplesEvery(1, risingValues), TIME_RANGE)).toBe("▁▂▂▂▂▃▃▃▄▄▄▄▅▅▅▆▆▆▇▇▇▇██");
  });

  test("draws equal values as a line of middle blocks", () => {
    expect(draw(10, ...Array<number>(19).fill(21.4))).toMatch(/^▄{12}$/);
  });

  test("draws a single value as one block", () => {
    expect(draw(10, 21.4)).toBe("▄");
    expect(drawSparkline([{ atMs: TIME_RANGE.fromMs, value: 21.4 }], TIME_RANGE)).toBe("▄");
  });

  test("draws false as the lowest block and true as the highest, even if all values are equal", () => {
    expect(draw(60, false, true)).toBe("█");
    expect(new Set(draw(10, ...Array<boolean>(19).fill(true)))).toEqual(new Set("█"));
    expect(new Set(draw(10, ...Array<boolean>(19).fill(false)))).toEqual(new Set("▁"));
    expect(draw(10, ...Array.from({ length: 19 }, (_, n) => n > 9))).toMatch(/^▁{6}█{6}$/);
  });

  test("shows missing values as no-break spaces, in the middle and at the end", () => {
    const values = Array.from({ length: 19 }, (_, n) => (n > 5 && n < 11 ? null : n));
    expect(draw(10, ...values)).toMatch(/^[▁-█]{4}\u00a0{3}[▁-█]{5}$/);
    const brokenValues = Array.from({ length: 19 }, (_, n) => (n > 9 ? null : n));
    expect(draw(10, ...brokenValues)).toMatch(/^[▁-█]{7}\u00a0{5}$/);
    const silentPoints = samplesEvery(10, Array<number>(19).fill(3)).filter((_, n) => n < 6 || n > 15);
    expect(drawSparkline(silentPoints, TIME_RANGE)).toMatch(/^▄{4}\u00a0{6}▄▄$/);
  });

  test("leaves no gap between values that arrive up to 40 s early or late", () => {
    const jitter = [0, 40, -35, 20, -40, 10, 38, -12, 0];
    const points = samplesEvery(20, Array<number>(9).fill(3)).map(({ atMs, value }, n) => ({
      atMs: atMs + (jitter[n] ?? 0) * 1_000 - MINUTE,
      value,
    }));
    expect(drawSparkline(points, TIME_RANGE)).toBe("▄▄▄▄▄");
  });

  test("draws huge and tiny numbers, and omits NaN and infinity", () => {
    expect(draw(90, -1.7e308, 0, 1.7e308)).toBe("█");
    expect(draw(10, ...Array.from({ length: 19 }, (_, n) => (n < 10 ? -1.7e308 : 1.7e308)))).toMatch(/^▁{6}█{6}$/);
    expect(draw(10, ...Array.from({ length: 19 }, (_, n) => (n % 2) * 5e-324))).toMatch(/^[▁-█]{12}$/);
    const some = [Number.NaN, Number.POSITIVE_INFINITY, ...Array<number>(17).fill(2)];
    expect(draw(10, ...some)).toMatch(/^▄+$/);
    expect(formatLine(samplesEvery(10, [Number.NaN, Number.NaN]))).toBeNull();
  });

  test("has at most 24 characters, all blocks or gaps, for any values", () => {
    const value = fc.oneof(fc.double(), fc.boolean(), fc.constant(null), fc.integer({ min: -40, max: 90 }));
    const point = fc.record({ atMs: fc.integer({ min: TIME_RANGE.fromMs, max: TIME_RANGE.toMs }), value });
    fc.assert(
      fc.property(fc.array(point, { maxLength: 400 }), (points) => {
        const sortedPoints = points.toSorted((a, b) => a.atMs - b.atMs);
        expect(drawSparkline(sortedPoints, TIME_RANGE)).toMatch(/^[▁▂▃▄▅▆▇█\u00a0]{1,24}$/);
        expect(formatLine(sortedPoints) ?? "").not.toMatch(/NaN|Infinity|undefined/);
      }),
    );
  });
});

describe("the text line of a time series", () => {
  test("has the name, the range with its unit, the last value and the duration", () => {
    const values = [20.04, 21.4, 21.4, 20.1, 19.3, 18.9, 18.2, 18.2, 18.2, 18.2];
    expect(formatLine(samplesEvery(20, values))).toBe("VS1-GT11 ██▃▃▁▁ 18.2–21.4 °C, last 18.2, 3 h");
    expect(formatLine(samplesEvery(20, values), TAG, chooseMessagePhrases("no", {}))).toContain(", sist 18.2, 3 h");
  });

  test("counts the duration from the first value in the range", () => {
    expect(formatLine(samplesEvery(10, [1, 2, 3, 4]))).toMatch(/ 1–4 °C, last 4, 30 min$/);
  });

  test("is absent for a single value", () => {
    expect(formatLine(samplesEvery(10, [4]))).toBeNull();
  });

  test.each<[string, readonly number[]]>([
    ["-5.2 – 3.1 °C, last 3.1", [-5.2, 3.1]],
    ["0–1.235e-7 °C, last 1.235e-7", [0, 1.23456e-7]],
    ["123456–123460 °C, last 123460", [123456.2, 123459.8]],
    ["0–1.2e+12 °C, last 1.2e+12", [0, 1.2345e12]],
    ["21 °C, last 21", [21.0000001, 21]],
  ])("has the range and last value %s", (text, values) => {
    expect(formatLine(samplesEvery(10, values))).toContain(` ${text}, 10 min`);
  });

  test("ends with the last boolean value, and keeps gaps at the end of the series", () => {
    const values = [false, false, true, null, null, null, null, null, null, null, null, null];
    expect(formatLine(samplesEvery(10, values), { ...TAG, unit: null })).toMatch(
      /^VS1-GT11 [▁█]+\u00a0+, last true, 1 h 50 min$/,
    );
  });

  test("is one line and cut between characters for any name and unit", () => {
    const tag = { ...TAG, displayName: `VS1\nGT\u0007${"👩‍👩‍👧‍👦".repeat(40)}`, unit: `°C\r\n${"x".repeat(99)}` };
    const text = formatLine(samplesEvery(10, [1, 2]), tag) ?? "";
    expect(text).not.toMatch(/\p{Cc}/u);
    expect(text.isWellFormed()).toBe(true);
    expect(text).toMatch(/^VS1 GT (👩‍👩‍👧‍👦)+… /u);
    expect(text.length).toBeLessThan(140);
  });
});
