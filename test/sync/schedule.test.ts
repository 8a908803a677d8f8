import fc from "fast-check";
import { createTask, getTasks } from "node-cron";
import { pino } from "pino";
import { describe, expect, test } from "vitest";
import { SyncConfig } from "#src/sync/config.ts";
import { clockTicker, cronTicker, matcher, scheduleComplaint } from "#src/sync/schedule.ts";
import { createVirtualClock } from "../virtual-clock.ts";

const START = Date.UTC(2026, 0, 31, 23, 59, 30);

describe("cron expressions", () => {
  test.each([
    ["* * * * *", null],
    ["*/30 * * * * *", null],
    ["* * * *", /5 fields/],
    ["61 * * * *", /minute/i],
    ["@daily", /5 fields/],
  ])("%s", (expression, complaint) => {
    if (complaint === null) expect(scheduleComplaint(expression)).toBeNull();
    else expect(scheduleComplaint(expression)).toMatch(complaint);
  });

  test("a wrong one is refused by the configuration at its place", () => {
    const result = SyncConfig.safeParse({ schedules: { alarms: "often" } });
    expect(result.error?.issues[0]?.path.slice(0, 2)).toEqual(["schedules", "alarms"]);
    expect(SyncConfig.parse({ schedules: { alarms: false } }).schedules.alarms).toBe(false);
  });

  test("the next match is the first second that node-cron itself matches", () => {
    const field = (max: number) => fc.oneof(fc.constant("*"), fc.integer({ min: 0, max }).map(String));
    const step = (max: number) => fc.integer({ min: 1, max }).map((n) => `*/${n}`);
    const expressions = fc
      .tuple(fc.oneof(field(59), step(30)), fc.oneof(field(59), step(30)), field(23))
      .map((fields) => `${fields.join(" ")} * * *`);
    fc.assert(
      fc.property(expressions, fc.integer({ min: START, max: START + 86_400_000 }), (expression, afterMs) => {
        const next = matcher(expression)(afterMs);
        const task = createTask(expression, () => undefined, { timezone: "UTC" });
        expect(next).toBeGreaterThan(afterMs);
        expect(task.match(new Date(next))).toBe(true);
        const probes = Array.from({ length: 20 }, (_, i) => afterMs + ((next - afterMs) * i) / 20);
        for (const ms of probes.map((one) => Math.ceil(one / 1000) * 1000)) {
          if (ms > afterMs && ms < next)
            expect(task.match(new Date(ms)), new Date(ms).toISOString()).toBe(false);
        }
      }),
      { numRuns: 60 },
    );
  });

  test("days are node-cron's own: the last of the month, the 29th of February, weekdays", () => {
    expect(new Date(matcher("0 0 12 L * *")(START)).toISOString()).toBe("2026-02-28T12:00:00.000Z");
    expect(new Date(matcher("0 12 29 2 *")(START)).toISOString()).toBe("2028-02-29T12:00:00.000Z");
    expect(new Date(matcher("0 12 * * 1")(START)).toISOString()).toBe("2026-02-02T12:00:00.000Z");
  });

  test("node-cron's own ticks arrive at whole seconds, until the end", async () => {
    const ticker = cronTicker(pino({ level: "silent" }));
    const { promise, resolve } = Promise.withResolvers<number>();
    const stop = ticker.every("* * * * * *", () => resolve(Date.now()));
    const at = await promise;
    stop();
    expect(at % 1_000).toBeLessThan(500);
    expect([...getTasks().values()].filter((task) => /idle|running/.test(task.getStatus()))).toEqual([]);
  });

  test("a virtual clock makes a day of ticks in no time, and none after the end", async () => {
    const clock = createVirtualClock(START);
    const times: number[] = [];
    const stop = clockTicker(clock).every("0 */6 * * *", () => times.push(clock.now()));
    await clock.advance(86_400_000);
    stop();
    await clock.advance(86_400_000);
    expect(times.map((ms) => new Date(ms).getUTCHours())).toEqual([0, 6, 12, 18]);
    expect(clock.sleepers()).toBe(0);
  });
});
