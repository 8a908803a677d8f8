import type { Clock } from "../../core/runtime/clock.ts";
import type { Log } from "../../core/runtime/log.ts";
import { createWakeup, runLoop } from "../../core/runtime/waiting.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { Journal } from "./journal.ts";
import type { MessageResult } from "./result-event.ts";

/** Reports refused commands: the first ones singly, further ones as one count per reason and minute. */
export type CommandRefusalReporter = ReturnType<typeof createRefusalReporter>;

/** Limits of reports for one reason: 30 at once, then 10 a minute. */
const MAX_REPORT_BURST = 30;
const REPORTS_PER_MINUTE = 10;
const MINUTE_MS = 60_000;

interface CountedCommandRefusals {
  count: number;
  readonly sinceMs: number;
  readonly dueMs: number;
  latest: MessageResult;
}

export function createRefusalReporter(journal: Journal, clock: Clock, log: Log) {
  const tokenBucketsByReason = new Map<string, { tokens: number; atMs: number }>();
  const refusalCounts = new Map<string, CountedCommandRefusals>();
  const firstCountWakeup = createWakeup();

  function takeReportToken(reason: string): boolean {
    const nowMs = clock.monotonic();
    const tokenBucket = tokenBucketsByReason.get(reason) ?? { tokens: MAX_REPORT_BURST, atMs: nowMs };
    const tokenCount = Math.min(
      MAX_REPORT_BURST,
      tokenBucket.tokens + ((nowMs - tokenBucket.atMs) / MINUTE_MS) * REPORTS_PER_MINUTE,
    );
    tokenBucketsByReason.set(reason, { tokens: tokenCount < 1 ? tokenCount : tokenCount - 1, atMs: nowMs });
    return tokenCount >= 1;
  }

  function countRefusal(latest: MessageResult): void {
    const countedRefusals = refusalCounts.get(latest.reason);
    if (countedRefusals !== undefined) {
      countedRefusals.count += 1;
      countedRefusals.latest = latest;
      return;
    }
    const dueMs = clock.monotonic() + MINUTE_MS;
    refusalCounts.set(latest.reason, { count: 1, sinceMs: clock.now(), dueMs, latest });
    firstCountWakeup.wakeUp();
  }

  async function reportCountedRefusals(): Promise<void> {
    const flushedRefusals = [...refusalCounts];
    refusalCounts.clear();
    if (flushedRefusals.length === 0) return;
    try {
      await journal.recordResults(flushedRefusals.map(([, each]) => summarizeRefusals(each)));
    } catch (error) {
      for (const [reason, each] of flushedRefusals)
        refusalCounts.set(reason, { ...each, count: each.count + (refusalCounts.get(reason)?.count ?? 0) });
      throw error;
    }
  }

  return {
    async reportResults(results: readonly MessageResult[]): Promise<void> {
      const singlyReportedResults: MessageResult[] = [];
      for (const result of results) {
        if (takeReportToken(result.reason)) singlyReportedResults.push(result);
        else countRefusal(result);
      }
      if (singlyReportedResults.length > 0) await journal.recordResults(singlyReportedResults);
    },
    flush: reportCountedRefusals,
    runReporting: (signal: AbortSignal): Promise<void> =>
      runLoop({
        clock,
        signal,
        wakeup: firstCountWakeup,
        async step() {
          const dueMs = Math.min(...[...refusalCounts.values()].map((each) => each.dueMs));
          if (dueMs > clock.monotonic()) return dueMs - clock.monotonic();
          await reportCountedRefusals();
          return Number.POSITIVE_INFINITY;
        },
        onFault: (error) => log.error({ err: error }, "refusals could not be recorded"),
      }),
  };
}

function summarizeRefusals({ count, sinceMs, latest }: CountedCommandRefusals): MessageResult {
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
