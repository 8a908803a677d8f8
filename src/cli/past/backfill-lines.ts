import type { Resolution } from "../../core/model/building.ts";
import type { StoredBackfill } from "../../engine/sync/snapshot.ts";

/** How far one stretch of the past is. Times are UTC. */
export interface Remaining {
  /** Null for what the configuration asks for. */
  readonly id: string | null;
  readonly from: string | null;
  readonly to: string | null;
  readonly resolution: Resolution;
  readonly tags: number;
  readonly requestsLeft: number;
  /** Share that is had, 0 to 1. */
  readonly done: number;
  readonly paused: boolean;
  /** It waits until the sinks have taken more of what is told already. */
  readonly sinksBehind: boolean;
  readonly doneAt: string | null;
  /** What the service says it has no log of; null before the end, and for what the configuration asks for. */
  readonly withoutLog: StoredBackfill["withoutLog"] | null;
  /** When it will be done by the plan; null while it is paused, and when it is done. */
  readonly expectedAt: string | null;
}

const CELLS = 24;

export function barLine(remaining: Remaining): string {
  const { done, requestsLeft } = remaining;
  const full = Math.floor(done * CELLS);
  const bar = `${"█".repeat(full)}${"░".repeat(CELLS - full)}`;
  return `${bar} ${percent(done)}, ${requestsLeft} requests left, ${endOf(remaining)}`;
}

function endOf({ paused, sinksBehind, expectedAt }: Remaining): string {
  if (paused) return "paused";
  if (sinksBehind) return "waiting for the sinks (plenum outbox)";
  return expectedAt === null ? "" : `done about ${minute(expectedAt)}`;
}

export function remainingLines(all: readonly Remaining[]): readonly string[] {
  if (all.length === 0) return ["Nothing of the past is to be fetched."];
  return all.map((each) => {
    const what =
      each.id === null
        ? "configured backfill"
        : `order ${each.id}, ${minute(each.from ?? "")} to ${minute(each.to ?? "")}`;
    if (each.doneAt !== null) {
      return `${what}, ${each.resolution}: done at ${minute(each.doneAt)}${withoutLogText(each.withoutLog)}`;
    }
    return `${what}, ${each.resolution}, ${each.tags} tags: ${barLine(each)}`;
  });
}

/** What of an order that is done is not there, though everything was asked for. */
export function withoutLogText(withoutLog: Remaining["withoutLog"]): string {
  if (!withoutLog || withoutLog.buckets === 0) return "";
  return `; the service has no log of ${withoutLog.buckets} intervals of ${withoutLog.tags} tags`;
}

/** Never 100 % before the end. */
function percent(share: number): string {
  return `${Math.min(99, Math.floor(share * 100))} %`;
}

function minute(time: string): string {
  return `${time.slice(0, 16)}Z`;
}
