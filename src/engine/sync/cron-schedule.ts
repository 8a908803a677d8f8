import { createTask, parse, validateDetailed } from "node-cron";
import type { Clock } from "../../core/runtime/clock.ts";
import type { ClockCheck } from "../../core/runtime/clock-check.ts";
import { OrderlyStop } from "../../core/runtime/lifecycle.ts";
import { combineWakeups, createWakeup, runLoop } from "../../core/runtime/waiting.ts";
import { parseDuration } from "../../core/values/duration.ts";

/** Calls functions at cron times in UTC, because daylight saving would pause every poll for an hour. */
export type ScheduleTicker = ReturnType<typeof clockTicker>;

const CRON_NICKNAMES: Readonly<Record<string, string>> = {
  "@hourly": "0 * * * *",
  "@daily": "0 0 * * *",
  "@midnight": "0 0 * * *",
  "@weekly": "0 0 * * 0",
  "@monthly": "0 0 1 * *",
  "@yearly": "0 0 1 1 *",
  "@annually": "0 0 1 1 *",
};

const CRON_FIELD_RANGES: Readonly<Record<string, string>> = {
  second: "0 to 59",
  minute: "0 to 59",
  hour: "0 to 23",
  dayOfMonth: "1 to 31",
  month: "1 to 12",
  dayOfWeek: "0 to 7",
};

export function expandNickname(expression: string): string {
  return CRON_NICKNAMES[expression.trim().toLowerCase()] ?? expression;
}

export function scheduleComplaint(expression: string): string | null {
  const trimmedText = expression.trim();
  if (trimmedText === "@reboot") return "Leave this out: each job runs once at every start anyway.";
  const suggestion = suggestExpression(trimmedText);
  if (suggestion !== null) return `Write "${suggestion}": a schedule is a cron expression, in UTC.`;
  if (![5, 6].includes(trimmedText.split(/\s+/).length))
    return "Write a schedule as 5 fields (minute hour day month weekday) or 6 (second first), such as */5 * * * *.";
  const result = validateDetailed(expression);
  if (result.valid) return null;
  const [firstError] = result.errors;
  if (firstError === undefined) return "This is no cron expression.";
  const field = String(firstError.field);
  return `The field ${field} cannot be read: write ${CRON_FIELD_RANGES[field] ?? "a number"}, *, */5, 1-5 or 1,3.`;
}

function suggestExpression(text: string): string | null {
  const timeMatch = /^([01]?\d|2[0-3]):([0-5]\d)$/.exec(text);
  if (timeMatch !== null) return `${Number(timeMatch[2])} ${Number(timeMatch[1])} * * *`;
  const durationMs = parseDuration(text.replace(/^@?every +(?=[a-z])/i, "1 ").replace(/^@?every +/i, ""));
  if (durationMs === null) return null;
  const [second, minute, hour] = [durationMs / 1_000, durationMs / 60_000, durationMs / 3_600_000];
  const dividesEvenly = (count: number, whole: number) => Number.isInteger(count) && count > 0 && whole % count === 0;
  if (hour === 24) return "0 0 * * *";
  if (dividesEvenly(hour, 24)) return hour === 1 ? "0 * * * *" : `0 */${hour} * * *`;
  if (dividesEvenly(minute, 60)) return minute === 1 ? "* * * * *" : `*/${minute} * * * *`;
  return dividesEvenly(second, 60) ? `*/${second} * * * * *` : null;
}

interface ScheduleTimer {
  readonly fire: () => void;
  readonly nextMatch: (afterMs: number) => number;
  dueMs: number;
  dueMonotonicMs: number;
}

/**
 * Computes the next match, waits by the monotonic clock, and fires. Missed matches count as one.
 *
 * After a step of the wall clock the next match is computed again and never postponed. Example at 12:01, every five minutes:
 * due at 12:05, in 4 minutes. Clock set back to 11:01: due at 11:05, also in 4 minutes. Set back to 11:00: due after 4
 * minutes of measured time, at 11:04, then at 11:05, 11:10 … Set forward by ten days: due once, at once.
 */
export function clockTicker(clock: Clock, clockCheck: Pick<ClockCheck, "look" | "steps">) {
  /** Timers of all schedules, which share one wait: 200 sources have 2,600 schedules. */
  const timers = new Set<ScheduleTimer>();
  const timerAdded = createWakeup();
  let endController: AbortController | null = null;
  let seenClockSteps = clockCheck.steps.wakeups();

  function setDue(timer: ScheduleTimer, dueMs: number): void {
    timer.dueMs = dueMs;
    timer.dueMonotonicMs = clock.monotonic() + dueMs - clock.now();
  }

  function fireDue(): number {
    clockCheck.look();
    const isStepped = clockCheck.steps.wakeups() !== seenClockSteps;
    seenClockSteps = clockCheck.steps.wakeups();
    let firstDueMs = Number.POSITIVE_INFINITY;
    for (const timer of [...timers]) {
      const nowMs = clock.now();
      if (isStepped) setDue(timer, Math.min(timer.nextMatch(nowMs), nowMs + timer.dueMonotonicMs - clock.monotonic()));
      if (nowMs >= timer.dueMs && timers.has(timer)) {
        // Fire timers due together in the order of their last runs: hourly gateways before the alarms of each minute.
        timers.delete(timer);
        timers.add(timer);
        timer.fire();
        setDue(timer, timer.nextMatch(clock.now()));
      }
      if (timers.has(timer)) firstDueMs = Math.min(firstDueMs, timer.dueMs);
    }
    return firstDueMs - clock.now();
  }

  function startLoop(): AbortController {
    const loopController = new AbortController();
    runLoop({
      clock,
      signal: loopController.signal,
      wakeup: combineWakeups(timerAdded, clockCheck.steps),
      turn: async () => fireDue(),
      fault(error) {
        throw error;
      },
    }).catch((error: unknown) => {
      if (!loopController.signal.aborted) throw error;
    });
    return loopController;
  }

  return {
    every(expression: string, fire: () => void): () => void {
      const timer: ScheduleTimer = { fire, nextMatch: cronMatcher(expression), dueMs: 0, dueMonotonicMs: 0 };
      setDue(timer, timer.nextMatch(clock.now()));
      timers.add(timer);
      if (endController === null) endController = startLoop();
      else timerAdded.wakeUp();
      return () => {
        timers.delete(timer);
        if (timers.size > 0) return;
        endController?.abort(new OrderlyStop());
        endController = null;
      };
    },
  };
}

type CronMatcher = (afterMs: number) => number;

/** Matchers by cron expression, because all sources of a fleet use the same thirteen expressions. */
const cronMatchers = new Map<string, CronMatcher>();
const MAX_CACHED_MATCHERS = 1_000;
const MINUTE_MS = 60_000;
const HOUR_MS = 3_600_000;
const DAY_MS = 86_400_000;
/** Most days searched for the next match: the 29th of February can be eight years away. */
const MAX_SEARCHED_DAYS = 366 * 8;

export function cronMatcher(expression: string): CronMatcher {
  const cachedMatcher = cronMatchers.get(expression);
  if (cachedMatcher !== undefined) return cachedMatcher;
  if (cronMatchers.size >= MAX_CACHED_MATCHERS) cronMatchers.clear();
  const newMatcher = createCronMatcher(expression);
  cronMatchers.set(expression, newMatcher);
  return newMatcher;
}

/** Parses a cron expression with node-cron, which also decides about days; times are looked up in its parsed fields. */
function createCronMatcher(expression: string): CronMatcher {
  const { second, minute, hour } = parse(expression);
  const cronTask = createTask(expression, () => undefined, { timezone: "UTC" });
  // Destroy the task, because node-cron would keep it in its registry forever.
  void cronTask.destroy();
  const ascending = (values: readonly number[]) => values.toSorted((a, b) => a - b);
  const seconds = ascending(second);
  const minutes = ascending(minute);
  const hours = ascending(hour);
  const firstMatchInDay = (dayMs: number, afterMs: number): number | null => {
    for (const h of hours) {
      if (dayMs + (h + 1) * HOUR_MS <= afterMs) continue;
      for (const m of minutes) {
        const minuteMs = dayMs + h * HOUR_MS + m * MINUTE_MS;
        if (minuteMs + MINUTE_MS <= afterMs) continue;
        for (const s of seconds) if (minuteMs + s * 1_000 > afterMs) return minuteMs + s * 1_000;
      }
    }
    return null;
  };
  // node-cron's decision about a day is slow because it formats dates: ask once per day.
  let lastDayDecision = { dayMs: Number.NaN, isOn: false };
  const isDayOn = (dayMs: number, atMs: number): boolean => {
    if (dayMs !== lastDayDecision.dayMs) lastDayDecision = { dayMs, isOn: cronTask.match(new Date(atMs)) };
    return lastDayDecision.isOn;
  };
  return (afterMs) => {
    const firstDay = Math.floor(afterMs / DAY_MS) * DAY_MS;
    for (let day = 0; day < MAX_SEARCHED_DAYS; day += 1) {
      const dayMs = firstDay + day * DAY_MS;
      const matchMs = firstMatchInDay(dayMs, afterMs);
      if (matchMs !== null && isDayOn(dayMs, matchMs)) return matchMs;
    }
    throw new Error(`The schedule ${expression} matches no day of the next eight years.`);
  };
}

export function cronIntervalMs(schedule: string, nowMs: number): number {
  const nextMatchMs = cronMatcher(schedule);
  const firstMatchMs = nextMatchMs(nowMs);
  return nextMatchMs(firstMatchMs) - firstMatchMs;
}
