import type { Clock } from "../../core/runtime/clock.ts";
import type { Log } from "../../core/runtime/log.ts";
import { createWakeup, runLoop } from "../../core/runtime/waiting.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { Journal } from "./journal.ts";
import type { MessageResult } from "./result-event.ts";

/** Reports rejections. In a flood, one record per reason and minute counts them, so the audit log cannot fill up. */
export type RefusalReporter = ReturnType<typeof createRefusals>;

/** Token bucket of each reason: 30 reports at once, 10 a minute for ever, which is 14,400 a day. */
const MAX_BURST = 30;
const PER_MINUTE = 10;
const MINUTE_MS = 60_000;

interface CountedRefusals {
  count: number;
  readonly sinceMs: number;
  readonly dueMs: number;
  latest: MessageResult;
}

export function createRefusals(options: { readonly journal: Journal; readonly clock: Clock; readonly log: Log }) {
  const { journal, clock, log } = options;
  const buckets = new Map<string, { tokens: number; atMs: number }>();
  const counted = new Map<string, CountedRefusals>();
  const countingBegan = createWakeup();

  function takeToken(reason: string): boolean {
    const now = clock.monotonic();
    const bucket = buckets.get(reason) ?? { tokens: MAX_BURST, atMs: now };
    const tokens = Math.min(MAX_BURST, bucket.tokens + ((now - bucket.atMs) / MINUTE_MS) * PER_MINUTE);
    buckets.set(reason, { tokens: tokens < 1 ? tokens : tokens - 1, atMs: now });
    return tokens >= 1;
  }

  function count(latest: MessageResult): void {
    const countedRefusal = counted.get(latest.reason);
    if (countedRefusal !== undefined) {
      countedRefusal.count += 1;
      countedRefusal.latest = latest;
      return;
    }
    const dueMs = clock.monotonic() + MINUTE_MS;
    counted.set(latest.reason, { count: 1, sinceMs: clock.now(), dueMs, latest });
    countingBegan.wakeUp();
  }

  async function flush(): Promise<void> {
    const countedEntries = [...counted];
    counted.clear();
    if (countedEntries.length === 0) return;
    try {
      await journal.report(countedEntries.map(([, each]) => summarizeRefusals(each)));
    } catch (error) {
      for (const [reason, each] of countedEntries)
        counted.set(reason, { ...each, count: each.count + (counted.get(reason)?.count ?? 0) });
      throw error;
    }
  }

  return {
    async report(results: readonly MessageResult[]): Promise<void> {
      const singleResults: MessageResult[] = [];
      for (const result of results) {
        if (takeToken(result.reason)) singleResults.push(result);
        else count(result);
      }
      if (singleResults.length > 0) await journal.report(singleResults);
    },
    flush,
    run: (signal: AbortSignal): Promise<void> =>
      runLoop({
        clock,
        signal,
        wakeup: countingBegan,
        async turn() {
          const dueMs = Math.min(...[...counted.values()].map((each) => each.dueMs));
          if (dueMs > clock.monotonic()) return dueMs - clock.monotonic();
          await flush();
          return Number.POSITIVE_INFINITY;
        },
        fault: (error) => log.error({ err: error }, "refusals could not be recorded"),
      }),
  };
}

function summarizeRefusals({ count, sinceMs, latest }: CountedRefusals): MessageResult {
  const startTime = isoUtc(sinceMs);
  return {
    ...latest,
    commandId: `many-${latest.reason}-${startTime}`,
    siteId: null,
    tagId: null,
    requested: null,
    message: `${count} more commands were refused for this reason since ${startTime}; the last: ${latest.message}`,
    replyTo: null,
    correlation: null,
  };
}
