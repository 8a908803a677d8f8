import { createTask, parse, validateDetailed } from "node-cron";
import type { Clock } from "../../core/runtime/clock.ts";
import type { ClockCheck } from "../../core/runtime/clock-check.ts";
import { Stopping } from "../../core/runtime/lifecycle.ts";
import { anyOf, createWakeup, loop } from "../../core/runtime/waiting.ts";
import { parseDuration } from "../../core/values/duration.ts";

/**
 * When something is due. Poll schedules are cron expressions in UTC, because in a zone with daylight saving the
 * repeated hour of autumn would run once, and every poll would pause for an hour.
 */
export interface Ticker {
  /** Calls `fire` at every match of the expression until the function that it returns is called. */
  every(expression: string, fire: () => void): () => void;
}

/** The names that cron gives to common expressions. */
const NICKNAMES: Readonly<Record<string, string>> = {
  "@hourly": "0 * * * *",
  "@daily": "0 0 * * *",
  "@midnight": "0 0 * * *",
  "@weekly": "0 0 * * 0",
  "@monthly": "0 0 1 * *",
  "@yearly": "0 0 1 1 *",
  "@annually": "0 0 1 1 *",
};

/** By node-cron's names of the fields. */
const RANGES: Readonly<Record<string, string>> = {
  second: "0 to 59",
  minute: "0 to 59",
  hour: "0 to 23",
  dayOfMonth: "1 to 31",
  month: "1 to 12",
  dayOfWeek: "0 to 7",
};

/** The expression that a nickname such as `@hourly` stands for; any other text as it is. */
export function withoutNickname(expression: string): string {
  return NICKNAMES[expression.trim().toLowerCase()] ?? expression;
}

/** One sentence on an invalid cron expression; null when it is valid. */
export function scheduleComplaint(expression: string): string | null {
  if (expression.trim() === "@reboot") return "Leave this out: each job runs once at every start anyway.";
  const meant = expressionFor(expression.trim());
  if (meant !== null) return `Write "${meant}": a schedule is a cron expression, in UTC.`;
  const fields = expression.trim().split(/\s+/).length;
  if (fields !== 5 && fields !== 6) {
    return "Write a schedule as 5 fields (minute hour day month weekday) or 6 (second first), such as */5 * * * *.";
  }
  const result = validateDetailed(expression);
  if (result.valid) return null;
  const [first] = result.errors;
  if (first === undefined) return "This is no cron expression.";
  const field = String(first.field);
  return `The field ${field} cannot be read: write ${RANGES[field] ?? "a number"}, *, */5, 1-5 or 1,3.`;
}

/** Cron expression for `5m`, `every 5 minutes`, `@every 1h` or `06:30`; null for other text. */
function expressionFor(text: string): string | null {
  const time = /^([01]?\d|2[0-3]):([0-5]\d)$/.exec(text);
  if (time !== null) return `${Number(time[2])} ${Number(time[1])} * * *`;
  const ms = parseDuration(text.replace(/^@?every +(?=[a-z])/i, "1 ").replace(/^@?every +/i, ""));
  if (ms === null) return null;
  const [second, minute, hour] = [1_000, 60_000, 3_600_000].map((size) => ms / size) as [number, number, number];
  const divides = (count: number, whole: number) => Number.isInteger(count) && count > 0 && whole % count === 0;
  if (hour === 24) return "0 0 * * *";
  if (divides(hour, 24)) return hour === 1 ? "0 * * * *" : `0 */${hour} * * *`;
  if (divides(minute, 60)) return minute === 1 ? "* * * * *" : `*/${minute} * * * *`;
  return divides(second, 60) ? `*/${second} * * * * *` : null;
}

/**
 * Computes the next match, waits by measured time, and fires. Missed matches count as one.
 *
 * After a step of the wall clock the next match is computed again and never postponed. Example at 12:01, every five minutes: due
 * at 12:05, in 4 minutes. Clock set back to 11:01: due at 11:05, also in 4 minutes. Set back to 11:00: due after 4 minutes of
 * measured time, at 11:04, then at 11:05, 11:10 … Set forward by ten days: due once, at once.
 */
export function clockTicker(clock: Clock, doubt: Pick<ClockCheck, "look" | "steps">): Ticker {
  /** All that is waited for, in one wait: 200 sources have 2,600 schedules. */
  const awaited = new Set<Awaited>();
  const news = createWakeup();
  let end: AbortController | null = null;
  let steps = doubt.steps.wakeups();

  function note(one: Awaited, nextMs: number): void {
    one.dueMs = nextMs;
    one.leftUntilMs = clock.monotonic() + nextMs - clock.now();
  }

  function turn(): number {
    doubt.look();
    const isStepped = doubt.steps.wakeups() !== steps;
    steps = doubt.steps.wakeups();
    let firstMs = Number.POSITIVE_INFINITY;
    for (const one of [...awaited]) {
      const nowMs = clock.now();
      if (isStepped) note(one, Math.min(one.nextMatch(nowMs), nowMs + one.leftUntilMs - clock.monotonic()));
      if (nowMs >= one.dueMs && awaited.has(one)) {
        // Behind all others: of what is due together the hourly list of gateways goes before the alarms of each minute,
        // which it explains.
        awaited.delete(one);
        awaited.add(one);
        one.fire();
        note(one, one.nextMatch(clock.now()));
      }
      if (awaited.has(one)) firstMs = Math.min(firstMs, one.dueMs);
    }
    return firstMs - clock.now();
  }

  function begin(): void {
    const ending = new AbortController();
    end = ending;
    const run = loop({
      clock,
      signal: ending.signal,
      bell: anyOf(news, doubt.steps),
      turn: async () => turn(),
      fault(error) {
        throw error;
      },
    });
    run.catch((error: unknown) => {
      if (!ending.signal.aborted) throw error;
    });
  }

  return {
    every(expression, fire) {
      const one: Awaited = { fire, nextMatch: matcher(expression), dueMs: 0, leftUntilMs: 0 };
      note(one, one.nextMatch(clock.now()));
      awaited.add(one);
      if (end === null) begin();
      else news.wakeUp();
      return () => {
        awaited.delete(one);
        if (awaited.size > 0) return;
        end?.abort(new Stopping());
        end = null;
      };
    },
  };
}

interface Awaited {
  readonly fire: () => void;
  readonly nextMatch: (afterMs: number) => number;
  /** By the wall clock, and by the monotonic clock. */
  dueMs: number;
  leftUntilMs: number;
}

/** By expression: all sources of a fleet have the same thirteen, and each holds some of node-cron's own objects. */
const matchers = new Map<string, (afterMs: number) => number>();
const MATCHERS_MAX = 1_000;

/**
 * The first match of an expression after a moment, both in milliseconds since 1970.
 * node-cron parses and judges the days; hours, minutes and seconds are looked up in its parsed fields.
 */
export function matcher(expression: string): (afterMs: number) => number {
  const known = matchers.get(expression);
  if (known !== undefined) return known;
  if (matchers.size >= MATCHERS_MAX) matchers.clear();
  const made = newMatcher(expression);
  matchers.set(expression, made);
  return made;
}

function newMatcher(expression: string): (afterMs: number) => number {
  const { second, minute, hour } = parse(expression);
  const task = createTask(expression, () => undefined, { timezone: "UTC" });
  // Only its judgement is wanted; node-cron would keep it in its register for ever.
  void task.destroy();
  const seconds = ascending(second);
  const minutes = ascending(minute);
  const hours = ascending(hour);
  const inDay = (dayMs: number, afterMs: number): number | null => {
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
  // To judge a day takes a formatter of dates, a hundred times as long as the rest: each is judged once.
  let judgedMs = Number.NaN;
  let judgement = false;
  const isOn = (dayMs: number, atMs: number): boolean => {
    if (dayMs !== judgedMs) judgement = task.match(new Date(atMs));
    judgedMs = dayMs;
    return judgement;
  };
  return (afterMs) => {
    const firstDay = Math.floor(afterMs / DAY_MS) * DAY_MS;
    for (let day = 0; day < LONGEST_WAIT_DAYS; day += 1) {
      const dayMs = firstDay + day * DAY_MS;
      const found = inDay(dayMs, afterMs);
      if (found !== null && isOn(dayMs, found)) return found;
    }
    throw new Error(`The schedule ${expression} matches no day of the next eight years.`);
  };
}

const MINUTE_MS = 60_000;
const HOUR_MS = 3_600_000;
const DAY_MS = 86_400_000;
/** The 29th of February can be eight years away. */
const LONGEST_WAIT_DAYS = 366 * 8;

function ascending(values: readonly number[]): readonly number[] {
  return [...values].sort((a, b) => a - b);
}

/** Time from one run of a schedule to the next, in milliseconds. */
export function everyMsOf(schedule: string, nowMs: number): number {
  const next = matcher(schedule);
  const first = next(nowMs);
  return next(first) - first;
}
