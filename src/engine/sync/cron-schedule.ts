import { createTask, parse, validateDetailed } from "node-cron";
import type { Clock } from "../../core/runtime/clock.ts";
import type { ClockCheck } from "../../core/runtime/clock-check.ts";
import { OrderlyStop } from "../../core/runtime/lifecycle.ts";
import { combineWakeups, createWakeup, runLoop } from "../../core/runtime/waiting.ts";
import { parseDuration } from "../../core/values/duration.ts";

export type CronTicker = ReturnType<typeof createCronTicker>;

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

export function expandCronNickname(expression: string): string {
  return CRON_NICKNAMES[expression.trim().toLowerCase()] ?? expression;
}

export function cronExpressionProblem(expression: string): string | null {
  const trimmedExpression = expression.trim();
  if (trimmedExpression === "@reboot") return "Leave this out: each job runs once at every start anyway.";
  const suggestedExpression = suggestCronExpression(trimmedExpression);
  if (suggestedExpression !== null) return `Write "${suggestedExpression}": a schedule is a cron expression, in UTC.`;
  if (![5, 6].includes(trimmedExpression.split(/\s+/).length))
    return "Write a schedule as 5 fields (minute hour day month weekday) or 6 (second first), such as */5 * * * *.";
  const cronValidation = validateDetailed(expression);
  if (cronValidation.valid) return null;
  const [firstError] = cronValidation.errors;
  if (firstError === undefined) return "This is no cron expression.";
  const field = String(firstError.field);
  return `The field ${field} cannot be read: write ${CRON_FIELD_RANGES[field] ?? "a number"}, *, */5, 1-5 or 1,3.`;
}

function suggestCronExpression(text: string): string | null {
  const timeOfDayMatch = /^([01]?\d|2[0-3]):([0-5]\d)$/.exec(text);
  if (timeOfDayMatch !== null) return `${Number(timeOfDayMatch[2])} ${Number(timeOfDayMatch[1])} * * *`;
  const durationMs = parseDuration(text.replace(/^@?every +(?=[a-z])/i, "1 ").replace(/^@?every +/i, ""));
  if (durationMs === null) return null;
  const [second, minute, hour] = [durationMs / 1_000, durationMs / 60_000, durationMs / 3_600_000];
  const dividesEvenly = (count: number, total: number) => Number.isInteger(count) && count > 0 && total % count === 0;
  if (hour === 24) return "0 0 * * *";
  if (dividesEvenly(hour, 24)) return hour === 1 ? "0 * * * *" : `0 */${hour} * * *`;
  if (dividesEvenly(minute, 60)) return minute === 1 ? "* * * * *" : `*/${minute} * * * *`;
  return dividesEvenly(second, 60) ? `*/${second} * * * * *` : null;
}

interface CronTimer {
  readonly fire: () => void;
  readonly nextMatchMs: (afterMs: number) => number;
  dueMs: number;
  dueMonotonicMs: number;
}

/**
 * Calls functions at cron times in UTC, by the monotonic clock. Several missed times cause one call. A step of the wall
 * clock never postpones a call: a call due in 4 minutes comes in 4 minutes, even if the clock is set back by an hour.
 */
export function createCronTicker(clock: Clock, clockCheck: Pick<ClockCheck, "compareClocks" | "stepWakeup">) {
  /** Timers of all schedules. One loop serves all of them, because 200 sources have 2,600 schedules. */
  const cronTimers = new Set<CronTimer>();
  const cronTimerAdded = createWakeup();
  let tickerEndController: AbortController | null = null;
  let seenClockSteps = clockCheck.stepWakeup.wakeupCount();

  function setDueTime(timer: CronTimer, dueMs: number): void {
    timer.dueMs = dueMs;
    timer.dueMonotonicMs = clock.monotonic() + dueMs - clock.now();
  }

  function fireDueTimers(): number {
    clockCheck.compareClocks();
    const wasClockStepped = clockCheck.stepWakeup.wakeupCount() !== seenClockSteps;
    seenClockSteps = clockCheck.stepWakeup.wakeupCount();
    let firstDueMs = Number.POSITIVE_INFINITY;
    for (const timer of [...cronTimers]) {
      const nowMs = clock.now();
      if (wasClockStepped)
        setDueTime(timer, Math.min(timer.nextMatchMs(nowMs), nowMs + timer.dueMonotonicMs - clock.monotonic()));
      if (nowMs >= timer.dueMs && cronTimers.has(timer)) {
        // Move the timer to the end, so that rare jobs fire first: hourly gateways before minutely alarms.
        cronTimers.delete(timer);
        cronTimers.add(timer);
        timer.fire();
        setDueTime(timer, timer.nextMatchMs(clock.now()));
      }
      if (cronTimers.has(timer)) firstDueMs = Math.min(firstDueMs, timer.dueMs);
    }
    return firstDueMs - clock.now();
  }

  function startTickerLoop(): AbortController {
    const tickerLoopController = new AbortController();
    runLoop({
      clock,
      signal: tickerLoopController.signal,
      wakeup: combineWakeups(cronTimerAdded, clockCheck.stepWakeup),
      step: async () => fireDueTimers(),
      onFault(error) {
        throw error;
      },
    }).catch((error: unknown) => {
      if (!tickerLoopController.signal.aborted) throw error;
    });
    return tickerLoopController;
  }

  return {
    addCronTimer(expression: string, fire: () => void): () => void {
      const cronTimer: CronTimer = { fire, nextMatchMs: cronMatcher(expression), dueMs: 0, dueMonotonicMs: 0 };
      setDueTime(cronTimer, cronTimer.nextMatchMs(clock.now()));
      cronTimers.add(cronTimer);
      if (tickerEndController === null) tickerEndController = startTickerLoop();
      else cronTimerAdded.wakeUp();
      return () => {
        cronTimers.delete(cronTimer);
        if (cronTimers.size > 0) return;
        tickerEndController?.abort(new OrderlyStop());
        tickerEndController = null;
      };
    },
  };
}

/** Returns the first matching time after `afterMs`, in milliseconds since 1970. */
type CronMatcher = (afterMs: number) => number;

const cronMatcherCache = new Map<string, CronMatcher>();
const MAX_CACHED_CRON_MATCHERS = 1_000;
const MINUTE_MS = 60_000;
const HOUR_MS = 3_600_000;
const DAY_MS = 86_400_000;
/** The next 29th of February can be eight years away. */
const MAX_DAYS_TO_NEXT_MATCH = 366 * 8;

export function cronMatcher(expression: string): CronMatcher {
  const cachedCronMatcher = cronMatcherCache.get(expression);
  if (cachedCronMatcher !== undefined) return cachedCronMatcher;
  if (cronMatcherCache.size >= MAX_CACHED_CRON_MATCHERS) cronMatcherCache.clear();
  const newCronMatcher = createCronMatcher(expression);
  cronMatcherCache.set(expression, newCronMatcher);
  return newCronMatcher;
}

/** Finds times with the fields that node-cron parsed, and lets node-cron decide whether a day matches. */
function createCronMatcher(expression: string): CronMatcher {
  const { second, minute, hour } = parse(expression);
  const cronTask = createTask(expression, () => undefined, { timezone: "UTC" });
  // Destroy the task, because node-cron would keep it in its registry forever.
  void cronTask.destroy();
  const ascending = (values: readonly number[]) => values.toSorted((a, b) => a - b);
  const [seconds, minutes, hours] = [ascending(second), ascending(minute), ascending(hour)];
  const firstMatchInDay = (dayMs: number, afterMs: number): number | null => {
    for (const h of hours) {
      if (dayMs + (h + 1) * HOUR_MS <= afterMs) continue;
      for (const m of minutes) {
        const startOfMinuteMs = dayMs + h * HOUR_MS + m * MINUTE_MS;
        if (startOfMinuteMs + MINUTE_MS <= afterMs) continue;
        for (const s of seconds) if (startOfMinuteMs + s * 1_000 > afterMs) return startOfMinuteMs + s * 1_000;
      }
    }
    return null;
  };
  // node-cron's decision about a day is slow because it formats dates: ask once per day.
  let lastDayDecision = { dayMs: Number.NaN, isOn: false };
  const doesDayMatch = (dayMs: number, atMs: number): boolean => {
    if (dayMs !== lastDayDecision.dayMs) lastDayDecision = { dayMs, isOn: cronTask.match(new Date(atMs)) };
    return lastDayDecision.isOn;
  };
  return (afterMs) => {
    const firstDayMs = Math.floor(afterMs / DAY_MS) * DAY_MS;
    for (let day = 0; day < MAX_DAYS_TO_NEXT_MATCH; day += 1) {
      const startOfDayMs = firstDayMs + day * DAY_MS;
      const cronMatchMs = firstMatchInDay(startOfDayMs, afterMs);
      if (cronMatchMs !== null && doesDayMatch(startOfDayMs, cronMatchMs)) return cronMatchMs;
    }
    throw new Error(`The schedule ${expression} matches no day of the next eight years.`);
  };
}

export function cronIntervalMs(schedule: string, nowMs: number): number {
  const nextCronMatchMs = cronMatcher(schedule);
  const firstCronMatchMs = nextCronMatchMs(nowMs);
  return nextCronMatchMs(firstCronMatchMs) - firstCronMatchMs;
}
