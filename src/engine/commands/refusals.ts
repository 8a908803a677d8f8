import type { Clock } from "../../core/runtime/clock.ts";
import type { Log } from "../../core/runtime/log.ts";
import { createWakeup, loop } from "../../core/runtime/waiting.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { Journal } from "./journal.ts";
import type { Warning } from "./result-event.ts";

/**
 * Reports rejections. At a normal rate each gets its own event and audit record. In a flood, such as a loop or an attack,
 * they are counted: one record per reason and minute, so that the audit log cannot be filled.
 */
export interface Refusals {
  /** Resolves when they are durable, or counted. */
  tell(notices: readonly Warning[]): Promise<void>;
  run(signal: AbortSignal): Promise<void>;
  /** Tells what was only counted so far. */
  flush(): Promise<void>;
}

/** Told one by one: so many of one reason at once … */
const BURST = 30;
/** … and so many a minute for ever: 14,400 a day and reason at the worst. */
const PER_MINUTE = 10;
const MINUTE_MS = 60_000;

interface Allowance {
  left: number;
  atMs: number;
}

interface Crowd {
  count: number;
  readonly sinceMs: number;
  /** When it is reported, in measured time. */
  readonly dueMs: number;
  latest: Warning;
}

export function createRefusals(options: {
  readonly journal: Journal;
  readonly clock: Clock;
  readonly log: Log;
}): Refusals {
  const { journal, clock, log } = options;
  const allowances = new Map<string, Allowance>();
  const crowds = new Map<string, Crowd>();
  const gathering = createWakeup();

  function isAlone(reason: string): boolean {
    const now = clock.monotonic();
    const allowance = allowances.get(reason) ?? { left: BURST, atMs: now };
    allowances.set(reason, allowance);
    allowance.left = Math.min(BURST, allowance.left + ((now - allowance.atMs) / MINUTE_MS) * PER_MINUTE);
    allowance.atMs = now;
    if (allowance.left < 1) return false;
    allowance.left -= 1;
    return true;
  }

  function count(notice: Warning): void {
    const crowd = crowds.get(notice.reason);
    if (crowd === undefined) {
      const dueMs = clock.monotonic() + MINUTE_MS;
      crowds.set(notice.reason, { count: 1, sinceMs: clock.now(), dueMs, latest: notice });
      gathering.wakeUp();
    } else {
      crowd.count += 1;
      crowd.latest = notice;
    }
  }

  async function flush(): Promise<void> {
    const gathered = [...crowds];
    crowds.clear();
    if (gathered.length === 0) return;
    try {
      await journal.tell(gathered.map(([, crowd]) => together(crowd)));
    } catch (error) {
      for (const [reason, crowd] of gathered) {
        const newer = crowds.get(reason);
        crowds.set(reason, { ...crowd, count: crowd.count + (newer?.count ?? 0) });
      }
      throw error;
    }
  }

  return {
    async tell(notices) {
      const alone = notices.filter((notice) => {
        if (isAlone(notice.reason)) return true;
        count(notice);
        return false;
      });
      if (alone.length > 0) await journal.tell(alone);
    },
    flush,
    run: (signal) =>
      loop({
        clock,
        signal,
        bell: gathering,
        async turn() {
          const dueMs = Math.min(...[...crowds.values()].map((crowd) => crowd.dueMs));
          if (dueMs > clock.monotonic()) return dueMs - clock.monotonic();
          await flush();
          return Number.POSITIVE_INFINITY;
        },
        fault: (error) => log.error({ err: error }, "refusals could not be recorded"),
      }),
  };
}

function together({ count, sinceMs, latest }: Crowd): Warning {
  const since = isoUtc(sinceMs);
  return {
    ...latest,
    commandId: `many-${latest.reason}-${since}`,
    siteId: null,
    tagId: null,
    requested: null,
    message: `${count} more commands were refused for this reason since ${since}; the last: ${latest.message}`,
    replyTo: null,
    correlation: null,
  };
}
