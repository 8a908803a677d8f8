import { sentence } from "../../core/errors/errors.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import type { Log } from "../../core/runtime/log.ts";
import { within } from "../../core/runtime/waiting.ts";
import type { HandoverLog } from "./handover-log.ts";
import { createLease, type HeldLease, type Lease, type OwnLease } from "./lease.ts";
import type { Reason } from "./status.ts";
import type { Trust } from "./trust.ts";

/**
 * Sources of this member, from the taken lease to the end of their work. A source never starts while an earlier ownership of the same
 * source is ending.
 *
 *   begin ─► starting ─► held ─► stopping ─► (given back) ─► over
 *               └── could not start ──┘  └── lost: at once, nothing to give back
 */
export interface Holdings {
  begin(source: string, epoch: number, incarnation: string): void;
  /** Ends it gently and gives the lease back. Resolves when both are done, or were given up. */
  handOver(source: string, reason: Reason, deadlineMs: number): Promise<void>;
  /** Somebody else may have it: it ends at once. */
  lose(source: string, why: string): void;
  all(): readonly Ownership[];
  get(source: string): Ownership | undefined;
}

export interface Ownership {
  readonly lease: Lease;
  readonly incarnation: string;
  readonly state: "starting" | "held" | "stopping";
}

interface OwnHolding extends Ownership {
  readonly lease: OwnLease;
  state: Ownership["state"];
  /** Resolves when `hold` has, well or not. */
  started: Promise<void>;
  held: HeldLease | null;
  over: Promise<void> | null;
}

export interface HoldingsOptions {
  readonly clock: Clock;
  readonly log: Log;
  readonly handovers: HandoverLog;
  readonly trust: Pick<Trust, "leftMs">;
  hold(lease: Lease): Promise<HeldLease>;
  /** Writes to the database. Errors are logged; the next look repairs the tables. */
  giveBack(holding: Ownership, reason: Reason): Promise<void>;
  /** See `Lease.reached`. */
  reached(source: string, isReached: boolean | null): void;
  /** It is held, and what runs for it has begun. */
  worked(source: string): void;
  failed(source: string, error: unknown): void;
  /** Something is over, begun or lost. */
  changed(): void;
}

/** Time limit for ending a source's work after its lease was lost, in milliseconds. */
const LOST_MS = 5_000;
/** So much longer than it was given somebody is waited for, in milliseconds. */
const PATIENCE_MS = 500;

export function createHoldings(options: HoldingsOptions): Holdings {
  const { clock, log, trust } = options;
  const holdings = new Map<string, OwnHolding>();

  async function start(holding: OwnHolding): Promise<void> {
    const { lease } = holding;
    try {
      const held = await options.hold(lease);
      holding.held = held;
      // Its end has not waited for it.
      if (holdings.get(lease.source) !== holding) return await stopHeld(holding, 0);
      if (holding.over !== null) return;
      holding.state = "held";
      options.worked(lease.source);
      options.changed();
    } catch (error) {
      if (lease.isOver || holding.over !== null) return;
      log.warn({ source: lease.source, reason: sentence(error) }, "a source could not be started here");
      options.failed(lease.source, error);
      void end(holding, "could-not-start", 0);
    }
  }

  async function stopHeld({ held, lease }: OwnHolding, deadlineMs: number): Promise<void> {
    if (held === null) return;
    const stopped = held.stop(deadlineMs).catch((error: unknown) => {
      log.warn({ source: lease.source, reason: sentence(error) }, "a source did not stop cleanly");
    });
    if (await within(clock, deadlineMs + PATIENCE_MS, stopped)) return;
    log.warn({ source: lease.source, deadlineMs }, "a source did not stop in time");
  }

  /** `reason` null: there is nothing to give back. */
  function end(holding: OwnHolding, reason: Reason | null, deadlineMs: number): Promise<void> {
    holding.over ??= ending(holding, reason, deadlineMs);
    return holding.over;
  }

  async function ending(holding: OwnHolding, reason: Reason | null, deadlineMs: number): Promise<void> {
    const { lease } = holding;
    const untilMs = clock.monotonic() + deadlineMs;
    // A source that has not started has nothing to finish.
    if (holding.state === "starting") lease.end("it is handed over");
    holding.state = "stopping";
    const hasStarted = reason === "could-not-start" || (await within(clock, deadlineMs, holding.started));
    if (hasStarted) await stopHeld(holding, Math.max(0, untilMs - clock.monotonic()));
    lease.end("it is handed over");
    if (reason !== null) {
      try {
        await options.giveBack(holding, reason);
      } catch (error) {
        const { source } = lease;
        log.warn({ source, reason: sentence(error) }, "a lease could not be given back; it will run out");
      }
    }
    holdings.delete(lease.source);
    options.changed();
  }

  function lose(source: string, why: string): void {
    const holding = holdings.get(source);
    if (holding === undefined || holding.lease.isOver) return;
    options.handovers.note("warn", "the leases on sources were lost", { why }, source);
    holding.lease.end(why);
    void end(holding, null, LOST_MS);
  }

  return {
    begin(source, epoch, incarnation) {
      const fenced = (lease: OwnLease) => {
        if (holdings.get(source)?.lease === lease) lose(source, "somebody else holds it");
      };
      const lease = createLease({
        ...{ source, epoch, trust, fenced },
        reached: (isReached) => options.reached(source, isReached),
      });
      const holding: OwnHolding = {
        lease,
        incarnation,
        state: "starting",
        started: Promise.resolve(),
        held: null,
        over: null,
      };
      holdings.set(source, holding);
      holding.started = start(holding);
    },
    async handOver(source, reason, deadlineMs) {
      const holding = holdings.get(source);
      if (holding !== undefined) await end(holding, reason, deadlineMs);
    },
    lose,
    all: () => [...holdings.values()],
    get: (source) => holdings.get(source),
  };
}
