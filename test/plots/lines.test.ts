import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { plotLineOfHours, plotLineOfReadings, samplesInGaps } from "#src/ui/plots/plot-lines.ts";
import type { Samples } from "#src/ui/plots/tag-samples.ts";

const NO_SAMPLES: Samples = { times: [], values: [] };
const OPTIONS = { read: NO_SAMPLES, logged: [], everyS: 60, fromS: 0, toS: 21_600 };
const evenSamples = (stepS: number, from: number, count: number): Samples => ({
  times: Array.from({ length: count }, (_, n) => from + n * stepS),
  values: Array.from({ length: count }, (_, n) => n),
});
const countNulls = ({ value }: { readonly value: readonly (number | null)[] }) =>
  value.filter((each) => each === null).length;

const samples: fc.Arbitrary<Samples> = fc
  .array(fc.tuple(fc.integer({ min: 0, max: 21_600 }), fc.option(fc.integer())), { maxLength: 4_000 })
  .map((readings) => ({ times: readings.map(([t]) => t), values: readings.map(([, value]) => value) }));

describe("the plotted line of a tag", () => {
  test("returns ascending times, columns of equal length, only values of the input, and at most 3,002 points", () => {
    fc.assert(
      fc.property(samples, samples, (read, logged) => {
        const { high, low, t, value } = plotLineOfReadings({
          ...OPTIONS,
          read,
          logged: [{ samples: logged, bucketS: 300 }],
        });
        expect(t.length).toBeLessThanOrEqual(2 * 1_501);
        expect([value.length, low?.length ?? t.length, high?.length ?? t.length]).toEqual(Array(3).fill(t.length));
        for (const [n, time] of t.entries()) if (n > 0) expect(time).toBeGreaterThan(t[n - 1] ?? 0);
        const inputValues = new Set([...read.values, ...logged.values]);
        for (const each of [...value, ...(low ?? []), ...(high ?? [])])
          expect(each === null || inputValues.has(each)).toBe(true);
      }),
      { numRuns: 50 },
    );
  });

  test("contains the readings, with a gap while the worker was stopped", () => {
    const { times, values } = evenSamples(60, 0, 10);
    const laterSamples = evenSamples(60, 3_600, 10);
    const read = { times: [...times, ...laterSamples.times], values: [...values, ...laterSamples.values] };
    const line = plotLineOfReadings({ ...OPTIONS, read });
    expect([line.t.length, countNulls(line), line.stepS, line.low]).toEqual([21, 1, 60, undefined]);
    expect(line.value[10]).toBeNull();
  });

  test("has no gap when readings are within the interval of the read class", () => {
    const read = { times: [0, 3, 6, 9, 120, 123], values: [1, 1, 1, 1, 1, 1] };
    expect(countNulls(plotLineOfReadings({ ...OPTIONS, read }))).toBe(0);
    expect(countNulls(plotLineOfReadings({ ...OPTIONS, read, everyS: 30 }))).toBe(1);
  });

  test("fills times without readings with logged history values", () => {
    const logged = evenSamples(300, 0, 20);
    const read = evenSamples(10, 3_000, 100);
    const gapSamples = samplesInGaps(read, logged, 300);
    expect(gapSamples.times).toEqual([
      0, 300, 600, 900, 1_200, 1_500, 1_800, 2_100, 2_400, 2_700, 4_200, 4_500, 4_800, 5_100, 5_400, 5_700,
    ]);
    const loggedGaps = [{ samples: gapSamples, bucketS: 300 }];
    expect(countNulls(plotLineOfReadings({ ...OPTIONS, read, logged: loggedGaps }))).toBe(0);
    // The median distance is that of readings and logged values together.
    const few = evenSamples(10, 5_990, 3);
    const line = plotLineOfReadings({ ...OPTIONS, read: few, logged: [{ samples: logged, bucketS: 300 }] });
    expect([line.t.length, line.stepS]).toEqual([23, 300]);
  });

  test("has the lowest and highest value of each step when there are more points than the limit", () => {
    const read = evenSamples(3, 0, 7_200);
    const line = plotLineOfReadings({ ...OPTIONS, read });
    expect(line.stepS).toBe(15);
    expect([line.low?.[1], line.value[1], line.high?.[1]]).toEqual([5, 9, 9]);
  });

  test("has a gap for a missing hour when it is drawn from hourly values", () => {
    const hour = { low: 1, high: 3, last: 2 };
    const line = plotLineOfHours([0, 3_600, 14_400].map((begin) => [begin, hour] as const));
    expect(line).toMatchObject({ value: [2, 2, null, 2], low: [1, 1, null, 1], stepS: 3_600 });
  });
});
