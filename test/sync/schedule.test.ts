import fc from "fast-check";
import { createTask } from "node-cron";
import { pino } from "pino";
import { describe, expect, test } from "vitest";
import { createClockCheck } from "#src/core/runtime/clock-check.ts";
import { runLoop } from "#src/core/runtime/waiting.ts";
import { SyncConfig } from "#src/engine/sync/config.ts";
import { createCronTicker, cronExpressionProblem, cronMatcher } from "#src/engine/sync/cron-schedule.ts";
import { createVirtualClock, type VirtualClock } from "../virtual-clock.ts";

const START = Date.UTC(2026, 0, 31, 23, 59, 30);

function doubtOf(clock: VirtualClock) {
  return createClockCheck({ clock, log: pino({ level: "silent" }) });
}

describe("cron expressions", () => {
  test.each<[expression: string, complaint: RegExp | string | null]>([
    ["* * * * *", null],
    ["*/30 * * * * *", null],
    ["* * * *", /5 fields/],
    ["61 * * * *", /minute/i],
    ["@fortnightly", /5 fields/],
    ["@reboot", /each job runs once at every start/],
    ["5m", '"*/5 * * * *"'],
    ["every 2 hours", '"0 */2 * * *"'],
    ["@every 30s", '"*/30 * * * * *"'],
    ["every minute", '"* * * * *"'],
    ["1d", '"0 0 * * *"'],
    ["06:30", '"30 6 * * *"'],
    ["7m", /5 fields/],
  ])("accepts the schedule or suggests a correction: %s", (expression, complaint) => {
    if (complaint === null) expect(cronExpressionProblem(expression)).toBeNull();
    else if (typeof complaint === "string") expect(cronExpressionProblem(expression)).toContain(complaint);
    else expect(cronExpressionProblem(expression)).toMatch(complaint);
  });

  test.each([
    ["@hourly", "0 * * * *"],
    ["@weekly", "0 0 * * 0"],
    ["@Annually ", "0 0 1 1 *"],
  ])("the schedule %s means %s", (nickname, expression) => {
    expect(SyncConfig.parse({ schedules: { tags: nickname } }).schedules.tags).toBe(expression);
  });

  test("the configuration rejects an invalid expression at its path, and accepts false", () => {
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
        const next = cronMatcher(expression)(afterMs);
        const task = createTask(expression, () => undefined, { timezone: "UTC" });
        expect(next).toBeGreaterThan(afterMs);
        expect(task.match(new Date(next))).toBe(true);
        const probes = Array.from({ length: 20 }, (_, i) => afterMs + ((next - afterMs) * i) / 20);
        for (const ms of probes.map((one) => Math.ceil(one / 1000) * 1000))
          if (ms > afterMs && ms < next) expect(task.match(new Date(ms)), new Date(ms).toISOString()).toBe(false);
      }),
      { numRuns: 60 },
    );
  });

  test("matches the last of the month, the 29th of February and weekdays", () => {
    expect(new Date(cronMatcher("0 0 12 L * *")(START)).toISOString()).toBe("2026-02-28T12:00:00.000Z");
    expect(new Date(cronMatcher("0 12 29 2 *")(START)).toISOString()).toBe("2028-02-29T12:00:00.000Z");
    expect(new Date(cronMatcher("0 12 * * 1")(START)).toISOString()).toBe("2026-02-02T12:00:00.000Z");
  });

  test("fires several expressions in order of time, also after other expressions were stopped", async () => {
    const clock = createVirtualClock(Date.UTC(2026, 5, 1, 12, 0, 0));
    const ticker = createCronTicker(clock, doubtOf(clock));
    const heard: string[] = [];
    const hear = (name: string) => () => void heard.push(`${name} ${(clock.now() % 3_600_000) / 1_000}`);
    const stopHourly = ticker.addCronTimer("0 * * * *", hear("hourly"));
    await clock.advance(10_000);
    const stopMinutely = ticker.addCronTimer("* * * * *", hear("minutely"));
    await clock.advance(60_000);
    const stopOnce = ticker.addCronTimer("*/2 * * * *", () => {
      heard.push("once");
      stopOnce();
      stopLast();
    });
    const stopLast = ticker.addCronTimer("*/2 * * * *", hear("never"));
    await clock.advance(60_000);
    stopMinutely();
    expect(clock.sleepers(), "one wait for all of them").toBe(1);
    await clock.advance(3_600_000);
    stopHourly();
    expect(heard).toEqual(["minutely 60", "minutely 120", "once", "hourly 0"]);
    expect(clock.sleepers()).toBe(0);
    const stopLater = ticker.addCronTimer("* * * * *", hear("again"));
    await clock.advance(60_000);
    stopLater();
    expect(heard.at(-1)).toBe("again 180");
  });
});

describe("a wall clock set forward or back", () => {
  const MINUTE_MS = 60_000;
  const DAY_MS = 86_400_000;

  function startTicks() {
    const clock = createVirtualClock(Date.UTC(2026, 5, 1, 12, 0, 0));
    const doubt = doubtOf(clock);
    const ending = new AbortController();
    const watching = runLoop({ ...doubt.watchLoop, signal: ending.signal });
    const ticks: number[] = [];
    const stop = createCronTicker(clock, doubt).addCronTimer("*/5 * * * *", () => ticks.push(clock.monotonic()));
    const end = async () => {
      stop();
      ending.abort();
      await watching;
    };
    return { clock, ticks, end };
  }

  async function ticksAround(stepMs: number, forMs: number) {
    const { clock, ticks, end } = startTicks();
    await clock.advance(11 * MINUTE_MS);
    const before = ticks.splice(0);
    clock.stepWall(stepMs);
    const steppedMs = clock.monotonic();
    await clock.advance(forMs);
    await end();
    expect(before).toEqual([5 * MINUTE_MS, 10 * MINUTE_MS]);
    return ticks.map((ms) => ms - steppedMs);
  }

  test.each([-10 * DAY_MS, -DAY_MS, -3_600_000, -61_000, -3_000, 3_000, 61_000, 3_600_000, DAY_MS, 10 * DAY_MS])(
    "set by %i ms causes no missing tick and no repeated tick",
    async (stepMs) => {
      const ticks = await ticksAround(stepMs, 60 * MINUTE_MS);
      let last = 0;
      for (const at of ticks) {
        expect(at - last).toBeLessThanOrEqual(5 * MINUTE_MS);
        last = at;
      }
      expect(60 * MINUTE_MS - last).toBeLessThanOrEqual(5 * MINUTE_MS);
      expect(ticks.length).toBeLessThanOrEqual(14);
    },
  );

  test("set back repeatedly does not change the interval of ticks", async () => {
    const { clock, ticks, end } = startTicks();
    for (let minute = 0; minute < 60; minute += 4) {
      await clock.advance(4 * MINUTE_MS);
      clock.stepWall(-4 * MINUTE_MS);
    }
    await end();
    expect(ticks.length).toBeGreaterThanOrEqual(11);
  });

  test("causes one tick after the machine was suspended for ten days", async () => {
    const clock = createVirtualClock(START);
    let ticks = 0;
    const stop = createCronTicker(clock, doubtOf(clock)).addCronTimer("* * * * * *", () => ticks++);
    await clock.advance(0);
    clock.suspend(10 * DAY_MS);
    await clock.advance(0);
    expect(ticks).toBe(1);
    stop();
  });
});
