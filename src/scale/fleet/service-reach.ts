import { backoffMs } from "../../core/runtime/backoff.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import type { Wakeup } from "../../core/runtime/waiting.ts";
import { isReached as isReachedIn, type Reached } from "./assign-sources.ts";
import { type FleetTables, holderOf } from "./tables.ts";

/** Consecutive failures after which a service counts as unreached. */
const FAILURES_UNTIL_UNREACHED = 2;
/** A check this long after a failure replaces the second failure, for sources with rare polls. */
const CONFIRM_MS = 2_000;
const CHECKS_AT_ONCE = 5;
const RECHECK_BACKOFF = { firstMs: 10_000, maxMs: 60_000 };
/** Time for which a source that was handed over is not taken back, even if its check works. */
const HANDED_OVER_BACKOFF = { firstMs: 15_000, maxMs: 900_000 };
const TRIAL_BACKOFF = { firstMs: 60_000, maxMs: 1_800_000 };
/** A trial without a result for this long has failed. */
const TRIAL_LIMIT_MS = 60_000;
/** After a successful trial the other sources may follow for this long. */
const FOLLOW_UP_MS = 60_000;

const NEVER = Number.POSITIVE_INFINITY;

interface ServiceReach {
  isReached: boolean | null;
  /** True once the service answered its own requests in the current ownership. */
  isPolled: boolean;
  failures: number;
  failedChecks: number;
  checkAtMs: number;
  timesLeft: number;
  leftUntilMs: number;
}

/**
 * Compares which services this member and other members reach: by own requests for a held source, else by health checks.
 *
 *   a holds s1   two failures in a row ─► s1: false ┐
 *   b                     checks s1 ────► s1: true  ┴─► a hands s1 over to b as a trial; b polls s1 ─► a hands over the rest
 *
 * A failed trial is repeated after growing waits. If no member reaches a service, its source stays where it is.
 */
export function createReach(options: {
  readonly name: string;
  readonly sources: readonly string[];
  readonly isHeld: (source: string) => boolean;
  /** False without a response. Needs no quota. */
  readonly check: (source: string, signal: AbortSignal) => Promise<boolean>;
  readonly changed: () => void;
  readonly due: Wakeup;
  readonly clock: Clock;
  readonly random?: (() => number) | undefined;
}) {
  const { name, sources, isHeld, check, changed, due, clock, random } = options;
  const services = new Map(
    sources.map((source): [string, ServiceReach] => [
      source,
      {
        ...{ isReached: null, isPolled: false, failures: 0, failedChecks: 0, timesLeft: 0 },
        ...{ checkAtMs: NEVER, leftUntilMs: Number.NEGATIVE_INFINITY },
      },
    ]),
  );
  let unreachedByOthers: ReadonlySet<string> = new Set();
  /** True when another member reaches a service that this one does not reach. */
  let isCut = false;
  let trial: { readonly source: string; readonly sinceMs: number } | null = null;
  let failedTrials = 0;
  let nextTrialMs = Number.NEGATIVE_INFINITY;
  let openUntilMs = Number.NEGATIVE_INFINITY;

  const now = () => clock.monotonic();
  const isDue = ({ checkAtMs }: ServiceReach) => checkAtMs <= now();
  const isNeeded = (source: string) => unreachedByOthers.has(source) || (isCut && !isHeld(source));

  function set(source: string, service: ServiceReach, isReached: boolean): void {
    if (isReached) service.failures = 0;
    const before = service.isReached;
    if (before === isReached) return;
    service.isReached = isReached;
    // Checks from before the failure are outdated.
    if (!isReached && isHeld(source))
      for (const [other, each] of services) if (!isHeld(other) && each.isReached === true) each.isReached = null;
    if (!isReached || before === false || isNeeded(source)) changed();
  }

  async function checkOne(source: string, service: ServiceReach, signal: AbortSignal): Promise<void> {
    const works = await check(source, signal);
    service.checkAtMs = NEVER;
    if (isHeld(source)) {
      // Its own requests decide; a failed check replaces the second failure.
      if (!works) set(source, service, false);
      return;
    }
    service.failedChecks = works ? 0 : service.failedChecks + 1;
    if (works && now() >= service.leftUntilMs) return set(source, service, true);
    const againMs = now() + backoffMs(RECHECK_BACKOFF, Math.max(1, service.failedChecks), random);
    service.checkAtMs = works ? service.leftUntilMs : againMs;
    set(source, service, false);
  }

  function endTrial(works: boolean): void {
    trial = null;
    failedTrials = works ? 0 : failedTrials + 1;
    if (works) openUntilMs = now() + FOLLOW_UP_MS;
    else nextTrialMs = now() + backoffMs(TRIAL_BACKOFF, failedTrials, random);
  }

  /** Ends the trial once the new holder's own requests have shown whether the service responds there. */
  function judgeTrial(view: FleetTables): void {
    if (trial === null) return;
    const { source, sinceMs } = trial;
    const row = view.sources.find((each) => each.name === source);
    const holder = row === undefined ? null : holderOf(row, view);
    const result = holder === null || holder.name === name ? undefined : holder.reach[source];
    // "checked" is from before the source moved there.
    if (typeof result === "boolean") endTrial(result);
    else if (now() - sinceMs >= TRIAL_LIMIT_MS) endTrial(false);
  }

  return {
    /** Records the result of an own request for a held source, see `Lease.reached`. */
    noteRequest(source: string, isReached: boolean | null) {
      const service = services.get(source);
      if (service === undefined) return;
      if (isReached === true) {
        const isFirst = !service.isPolled;
        service.isPolled = true;
        set(source, service, true);
        if (isFirst && isNeeded(source)) changed();
        return;
      }
      if (service.isReached === false) return;
      if (isReached === false) service.failures += 1;
      if (service.failures >= FAILURES_UNTIL_UNREACHED) return set(source, service, false);
      service.checkAtMs = Math.min(service.checkAtMs, now() + CONFIRM_MS);
      due.wakeUp();
    },
    begin(source: string): void {
      const service = services.get(source);
      if (service === undefined) return;
      // A successful check stays: from it the former holder knows that it is cut off.
      const isReached = service.isReached === true ? true : null;
      Object.assign(service, { isReached, isPolled: false, failures: 0, failedChecks: 0, checkAtMs: NEVER });
    },
    update(view: FleetTables): void {
      const others = view.members.filter((each) => each.gone === null && each.name !== name);
      unreachedByOthers = new Set(
        others.flatMap(({ reach }) => Object.keys(reach).filter((source) => reach[source] === false)),
      );
      const unreachedByHolder = new Set(
        view.sources
          .filter((row) => holderOf(row, view)?.name !== name && holderOf(row, view)?.reach[row.name] === false)
          .map((row) => row.name),
      );
      isCut = [...services].some(
        ([source, { isReached }]) => isReached === false && others.some(({ reach }) => isReachedIn(reach, source)),
      );
      judgeTrial(view);
      for (const [source, service] of services) {
        if (isHeld(source)) continue;
        // A result that no member needs any more is forgotten, and checked again when one needs it.
        if (!isCut && service.isReached === true && !unreachedByOthers.has(source)) service.isReached = null;
        const isUnknown = service.isReached === null && service.checkAtMs === NEVER;
        if (isUnknown && (isCut || unreachedByHolder.has(source))) service.checkAtMs = now();
      }
      if ([...services.values()].some(isDue)) due.wakeUp();
    },
    report: (): Reached =>
      Object.fromEntries(
        [...services].flatMap(([source, { isReached, isPolled }]): readonly [string, boolean | "checked"][] => {
          if (isReached === false) return [[source, false]];
          return isReached === true && isNeeded(source) ? [[source, (isHeld(source) && isPolled) || "checked"]] : [];
        }),
      ),
    isUnreached: (source: string) => isHeld(source) && services.get(source)?.isReached === false,
    /** Whether an unreached source may be handed over now; the first handover is a trial. */
    mayHandOver(source: string, view: FleetTables): boolean {
      judgeTrial(view);
      const service = services.get(source);
      const isOpen = now() < openUntilMs;
      if (trial !== null || service === undefined || (!isOpen && now() < nextTrialMs)) return false;
      if (isOpen) openUntilMs = now() + FOLLOW_UP_MS;
      else trial = { source, sinceMs: now() };
      service.timesLeft += 1;
      service.leftUntilMs = now() + backoffMs(HANDED_OVER_BACKOFF, service.timesLeft, random);
      service.checkAtMs = service.leftUntilMs;
      return true;
    },
    /** Runs due checks and returns the milliseconds until the next one. */
    async checkServices(signal: AbortSignal): Promise<number> {
      const list = [...services].filter(([, service]) => isDue(service)).slice(0, CHECKS_AT_ONCE);
      await Promise.all(list.map(([source, service]) => checkOne(source, service, signal)));
      return Math.max(0, Math.min(...[...services.values()].map(({ checkAtMs }) => checkAtMs)) - now());
    },
    /** Milliseconds until `mayHandOver` can change without a change of the tables. */
    nextMs(): number {
      const untilMs = trial === null ? nextTrialMs : trial.sinceMs + TRIAL_LIMIT_MS;
      return untilMs > now() ? untilMs - now() : NEVER;
    },
    notices(): readonly string[] {
      const unreached = [...services].filter(([, { isReached }]) => isReached === false).map(([source]) => source);
      if (unreached.length === 0 || !isCut) return [];
      return [
        `This member does not reach the services of ${unreached.join(", ")}, and another member does: it hands those over. Look at the network of this machine.`,
      ];
    },
  };
}

export type Reach = ReturnType<typeof createReach>;
