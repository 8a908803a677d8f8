import { errorText } from "../../core/errors/errors.ts";
import { backoffMs } from "../../core/runtime/backoff.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import type { Log } from "../../core/runtime/log.ts";
import { endsWithin } from "../../core/runtime/waiting.ts";
import type { TakeoverReason } from "./fleet-tables.ts";
import type { LeaseExpiryTimer } from "./lease-timing.ts";

export interface Lease {
  readonly source: string;
  /** Number that rises with every change of holder, so that transactions of an earlier holder fail. */
  readonly epoch: number;
  /** Returns the milliseconds for which no other member can hold the source; 0 when the lease is over. */
  remainingMs(): number;
  /** Aborts when the lease is lost, or at the end of a handover, after `RunningSource.stop`. */
  readonly signal: AbortSignal;
  /** Ends the ownership after the database rejected this holder (`FencedError`). */
  noteLeaseFenced(): void;
  /** Reports whether the service could be connected to; null if it has not responded for seconds. */
  noteReached(isReached: boolean | null): void;
}

export interface RunningSource {
  /** Finishes current work within the deadline; after a lost lease, stops without finishing work. */
  stop(deadlineMs: number): Promise<void>;
}

class LeaseEnded extends Error {
  constructor(source: string, reason: string) {
    super(`The lease on ${source} is over: ${reason}.`);
    this.name = "LeaseEnded";
  }
}

export interface SourceHolding {
  readonly lease: Lease;
  readonly incarnation: string;
  readonly state: "starting" | "held" | "stopping";
}

interface MutableHolding extends SourceHolding {
  readonly leaseEndController: AbortController;
  state: SourceHolding["state"];
  started: Promise<void>;
  runningSource: RunningSource | null;
  ended: Promise<void> | null;
}

const LOST_LEASE_STOP_TIMEOUT_MS = 5_000;
/** After its deadline, the work for a source gets this additional time to stop. */
const SOURCE_STOP_GRACE_MS = 500;

/**
 * Sources of this member. A source never starts while an earlier ownership of the same source is ending.
 *
 *   begin ─► starting ─► held ─► stopping ─► (released) ─► over
 *               └── could not start ──┘  └── lost: at once, nothing to release
 */
export function createHoldings(options: {
  readonly clock: Clock;
  readonly log: Log;
  readonly handoverLog: HandoverLog;
  readonly failedStarts: FailedSourceStarts;
  readonly leaseExpiry: Pick<LeaseExpiryTimer, "leftMs">;
  startSource(lease: Lease): Promise<RunningSource>;
  /** Releases a lease in the database. Errors are only logged, because the next step repairs the tables. */
  release(holding: SourceHolding, reason: TakeoverReason): Promise<void>;
  onReachChanged(source: string, isReached: boolean | null): void;
  onChanged(): void;
}) {
  const { clock, failedStarts, log, leaseExpiry } = options;
  const holdingBySource = new Map<string, MutableHolding>();

  async function startSourceWork(holding: MutableHolding): Promise<void> {
    const { lease, leaseEndController } = holding;
    const { source } = lease;
    try {
      holding.runningSource = await options.startSource(lease);
      // The ownership may have ended during the start.
      if (holdingBySource.get(source) !== holding) return await stopSourceWork(holding, 0);
      if (holding.ended !== null) return;
      holding.state = "held";
      failedStarts.noteSuccess(source);
      options.onChanged();
    } catch (error) {
      if (leaseEndController.signal.aborted || holding.ended !== null) return;
      log.warn({ source, reason: errorText(error) }, "a source could not be started here");
      failedStarts.noteFailure(source, error);
      void endHoldingOnce(holding, "could-not-start", 0);
    }
  }

  async function stopSourceWork(
    { runningSource, lease: { source } }: MutableHolding,
    deadlineMs: number,
  ): Promise<void> {
    if (runningSource === null) return;
    const stopResult = runningSource.stop(deadlineMs).catch((error: unknown) => {
      log.warn({ source, reason: errorText(error) }, "a source did not stop cleanly");
    });
    if (await endsWithin(clock, deadlineMs + SOURCE_STOP_GRACE_MS, stopResult)) return;
    log.warn({ source, deadlineMs }, "a source did not stop in time");
  }

  /** Ends the work for a source once. `reason` is null for a lost lease, which needs no release. */
  function endHoldingOnce(holding: MutableHolding, reason: TakeoverReason | null, deadlineMs: number): Promise<void> {
    holding.ended ??= endHolding(holding, reason, deadlineMs);
    return holding.ended;
  }

  async function endHolding(holding: MutableHolding, reason: TakeoverReason | null, deadlineMs: number): Promise<void> {
    const { source } = holding.lease;
    const stopDeadlineMs = clock.monotonic() + deadlineMs;
    // A source that has not started has nothing to finish.
    if (holding.state === "starting") endLease(holding, "it is handed over");
    holding.state = "stopping";
    const hasSourceStarted = reason === "could-not-start" || (await endsWithin(clock, deadlineMs, holding.started));
    if (hasSourceStarted) await stopSourceWork(holding, Math.max(0, stopDeadlineMs - clock.monotonic()));
    endLease(holding, "it is handed over");
    if (reason !== null)
      await options.release(holding, reason).catch((error: unknown) => {
        log.warn({ source, reason: errorText(error) }, "a lease could not be given back; it will run out");
      });
    holdingBySource.delete(source);
    options.onChanged();
  }

  function endLease({ lease, leaseEndController }: MutableHolding, reason: string): void {
    if (!leaseEndController.signal.aborted) leaseEndController.abort(new LeaseEnded(lease.source, reason));
  }

  function loseLease(source: string, why: string): void {
    const sourceHolding = holdingBySource.get(source);
    if (sourceHolding === undefined || sourceHolding.leaseEndController.signal.aborted) return;
    options.handoverLog.note("warn", "the leases on sources were lost", { why }, source);
    endLease(sourceHolding, why);
    void endHoldingOnce(sourceHolding, null, LOST_LEASE_STOP_TIMEOUT_MS);
  }

  return {
    beginHolding(source: string, epoch: number, incarnation: string): void {
      const leaseEndController = new AbortController();
      const lease: Lease = {
        ...{ source, epoch, signal: leaseEndController.signal },
        remainingMs: () => (leaseEndController.signal.aborted ? 0 : leaseExpiry.leftMs()),
        noteLeaseFenced() {
          if (holdingBySource.get(source)?.lease === lease) loseLease(source, "somebody else holds it");
        },
        noteReached(isReached) {
          if (!leaseEndController.signal.aborted) options.onReachChanged(source, isReached);
        },
      };
      const sourceHolding: MutableHolding = {
        ...{ lease, incarnation, state: "starting", started: Promise.resolve(), runningSource: null, ended: null },
        leaseEndController,
      };
      holdingBySource.set(source, sourceHolding);
      sourceHolding.started = startSourceWork(sourceHolding);
    },
    /** Resolves when the work has ended and the lease is released, or when both have timed out. */
    async handOver(source: string, reason: TakeoverReason, deadlineMs: number): Promise<void> {
      const sourceHolding = holdingBySource.get(source);
      if (sourceHolding !== undefined) await endHoldingOnce(sourceHolding, reason, deadlineMs);
    },
    lose: loseLease,
    getAll: (): readonly SourceHolding[] => [...holdingBySource.values()],
    get: (source: string): SourceHolding | undefined => holdingBySource.get(source),
  };
}

export type SourceHoldings = ReturnType<typeof createHoldings>;

const HANDOVER_LOG_WAIT_MS = 2_000;

/** Writes one log line for all sources that change their holder together, instead of 300 lines for 300 sources. */
export function createHandoverLog(clock: Pick<Clock, "monotonic">, log: Log) {
  const pendingLogLines = new Map<string, { readonly write: () => void; readonly sources: string[]; atMs: number }>();
  return {
    note(level: "info" | "warn", text: string, fields: object, source: string): void {
      const key = JSON.stringify([text, fields]);
      const sources = pendingLogLines.get(key)?.sources ?? [];
      sources.push(source);
      const write = () => log[level]({ ...fields, count: sources.length, sources: sources.toSorted() }, text);
      pendingLogLines.set(key, { write, sources, atMs: clock.monotonic() });
    },
    /** Writes each log line to which no source was added for 2 s; at the end, writes all log lines. */
    flush(isFinal = false): void {
      for (const [key, { write, atMs }] of pendingLogLines) {
        if (!isFinal && clock.monotonic() - atMs < HANDOVER_LOG_WAIT_MS) continue;
        pendingLogLines.delete(key);
        write();
      }
    },
  };
}

export type HandoverLog = ReturnType<typeof createHandoverLog>;

const FAILED_START_BACKOFF = { firstMs: 10_000, maxMs: 300_000 };

/** Sources that this member could not start. It waits longer after each failure; other members may take them first. */
export function createFailedStarts(clock: Clock, random: () => number = Math.random) {
  const failedStartBySource = new Map<string, Readonly<{ count: number; untilMs: number; reason: string }>>();
  const currentFailures = () => [...failedStartBySource].filter(([, { untilMs }]) => untilMs > clock.monotonic());
  return {
    noteFailure(source: string, error: unknown): void {
      const failureCount = (failedStartBySource.get(source)?.count ?? 0) + 1;
      const retryAtMs = clock.monotonic() + backoffMs(FAILED_START_BACKOFF, failureCount, random);
      failedStartBySource.set(source, { count: failureCount, untilMs: retryAtMs, reason: errorText(error) });
    },
    noteSuccess: (source: string) => void failedStartBySource.delete(source),
    sources: () => [...new Map(currentFailures()).keys()].toSorted(),
    /** Milliseconds until the first failed source may be started again; infinite without failed starts. */
    waitMs: () =>
      Math.min(Number.POSITIVE_INFINITY, ...currentFailures().map(([, { untilMs }]) => untilMs - clock.monotonic())),
    notices: () =>
      currentFailures().map(
        ([source, { reason }]) =>
          `The source ${source} could not be started here, and is left to other members: ${reason}`,
      ),
  };
}

export type FailedSourceStarts = ReturnType<typeof createFailedStarts>;
