import { backoffMs } from "../../core/runtime/backoff.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import type { Wakeup } from "../../core/runtime/waiting.ts";
import { isReached as isReachedIn, type Reached } from "./share.ts";
import { holderOf, type View } from "./view.ts";

/**
 * Which services this member reaches, in comparison with the other members.
 *
 * For a held source that is said by its own requests, for any other by a health check, which is free. A holder that does
 * not reach the service of a source lists that in its row; the others then check that service and list what they found. So
 * a fault of the service (no member reaches it) differs from a fault of this member's network (another member does):
 *
 *   a holds s1   two failures in a row ─► s1: false ┐
 *   b                     checks s1 ────► s1: true  ┴─► a hands s1 over to b as a trial; b polls s1 ─► a hands over the rest
 *
 * A trial that fails is repeated after ever longer waits. A source that was handed over is left to others until a health
 * check from here works again.
 */
export interface Reach {
  /** The service of a held source has answered, has not (a failure of the connection), or has not yet for seconds (null). */
  noted(source: string, isReached: boolean | null): void;
  /** This member holds the source from now on, and has not polled it yet. */
  begun(source: string): void;
  /** Takes in what the tables say. */
  seen(view: View): void;
  /** For this member's row. */
  report(): Reached;
  /** A held source whose service this member does not reach. */
  isUnreached(source: string): boolean;
  /** Whether such a source may be handed over now; the first one is a trial. */
  mayGive(source: string, view: View): boolean;
  /** Checks what is due. Returns after how many milliseconds to be called again at the latest. */
  turn(signal: AbortSignal): Promise<number>;
  /** Milliseconds until `mayGive` may answer otherwise without a change of the tables. */
  nextMs(): number;
  /** A message about each source that this member does not reach. */
  notices(): readonly string[];
}

export interface ReachOptions {
  readonly name: string;
  readonly sources: readonly string[];
  readonly isHeld: (source: string) => boolean;
  /** One health check of the source's service, without quota: false where no answer comes. */
  readonly check: (source: string, signal: AbortSignal) => Promise<boolean>;
  /** Called when `report` returns something else. */
  readonly changed: () => void;
  /** Rings when a check is due. */
  readonly due: Wakeup;
  readonly clock: Clock;
  readonly random?: (() => number) | undefined;
}

/** Failures in a row after which a service counts as not reached. */
const FAILURES = 2;
/** A check stands for the second one where polls are rare; a short interruption is over until then. */
const CONFIRM_MS = 2_000;
const CHECKS_AT_ONCE = 5;
/** Between two checks of a service that is not reached. */
const RECHECK = { firstMs: 10_000, maxMs: 60_000 };
/** A source that was handed over is not taken back for so long, though its check may work: ever longer. */
const LEFT = { firstMs: 15_000, maxMs: 900_000 };
/** Between two trials, after one that failed. */
const TRIAL = { firstMs: 60_000, maxMs: 1_800_000 };
/** A trial without a result for so long has failed, in milliseconds. */
const TRIAL_MS = 60_000;
/** After a trial that worked the rest may follow for so long, in milliseconds. */
const OPEN_MS = 60_000;

interface Entry {
  isReached: boolean | null;
  /** Its own requests were answered since it is held here; otherwise a check was. */
  isPolled: boolean;
  failures: number;
  /** How often a check has failed since it worked last. */
  failedChecks: number;
  /** When to check; infinite where there is no reason to. */
  checkAtMs: number;
  timesLeft: number;
  leftUntilMs: number;
}

export function createReach(options: ReachOptions): Reach {
  const { name, sources, isHeld, check, changed, due, clock, random } = options;
  const entries = new Map(
    sources.map((source): [string, Entry] => [
      source,
      {
        ...{ isReached: null, isPolled: false, failures: 0, failedChecks: 0, timesLeft: 0 },
        ...{ checkAtMs: Number.POSITIVE_INFINITY, leftUntilMs: Number.NEGATIVE_INFINITY },
      },
    ]),
  );
  /** Sources that another member does not reach, and those among them that it holds. */
  let listed: ReadonlySet<string> = new Set();
  let wanted: ReadonlySet<string> = new Set();
  /** Another member reaches what this one does not. */
  let isCut = false;
  let trial: { readonly source: string; readonly sinceMs: number } | null = null;
  let failedTrials = 0;
  let nextTrialMs = Number.NEGATIVE_INFINITY;
  let openUntilMs = Number.NEGATIVE_INFINITY;

  const now = () => clock.monotonic();
  const isDue = ({ checkAtMs }: Entry) => checkAtMs <= now();

  /** Whether others have to know that this member reaches it. */
  const isAskedFor = (source: string) => listed.has(source) || (isCut && !isHeld(source));

  function set(source: string, entry: Entry, isReached: boolean): void {
    entry.failures = isReached ? 0 : entry.failures;
    const before = entry.isReached;
    if (before === isReached) return;
    entry.isReached = isReached;
    // Checks that ended before the fault prove nothing any more.
    if (!isReached && isHeld(source))
      for (const [other, each] of entries) if (!isHeld(other) && each.isReached === true) each.isReached = null;
    if (!isReached || before === false || isAskedFor(source)) changed();
  }

  /** Makes checks due that the latest tables ask for. */
  function plan(): void {
    for (const [source, entry] of entries) {
      const isUnknown = entry.isReached === null && entry.checkAtMs === Number.POSITIVE_INFINITY;
      if (!isHeld(source) && isUnknown && (wanted.has(source) || isCut)) entry.checkAtMs = now();
    }
    if ([...entries.values()].some(isDue)) due.wakeUp();
  }

  async function checkOne(source: string, entry: Entry, signal: AbortSignal): Promise<void> {
    const works = await check(source, signal);
    entry.checkAtMs = Number.POSITIVE_INFINITY;
    if (isHeld(source)) {
      // Its own requests decide; the check stands for the second one, which would come much later.
      if (!works) set(source, entry, false);
      return;
    }
    if (works && now() >= entry.leftUntilMs) {
      entry.failedChecks = 0;
      set(source, entry, true);
      return;
    }
    entry.failedChecks = works ? 0 : entry.failedChecks + 1;
    const againMs = now() + backoffMs(RECHECK, Math.max(1, entry.failedChecks), random);
    entry.checkAtMs = works ? Math.max(entry.leftUntilMs, now()) : againMs;
    set(source, entry, false);
  }

  function endTrial(works: boolean): void {
    trial = null;
    failedTrials = works ? 0 : failedTrials + 1;
    if (works) openUntilMs = now() + OPEN_MS;
    else nextTrialMs = now() + backoffMs(TRIAL, failedTrials, random);
  }

  /** Ends the trial once the new holder's own requests have shown whether the service answers there. */
  function judgeTrial(view: View): void {
    if (trial === null) return;
    const { source, sinceMs } = trial;
    const row = view.sources.find((each) => each.name === source);
    const holder = row === undefined ? null : holderOf(row, view);
    const isElsewhere = holder !== null && holder.name !== name;
    const said = isElsewhere ? holder.reach[source] : undefined;
    // A check was made before the source moved there.
    if (typeof said === "boolean") endTrial(said);
    else if (now() - sinceMs >= TRIAL_MS) endTrial(false);
  }

  return {
    noted(source, isReached) {
      const entry = entries.get(source);
      if (entry === undefined) return;
      if (isReached === true) {
        const isNew = !entry.isPolled;
        entry.isPolled = true;
        set(source, entry, true);
        if (isNew && isAskedFor(source)) changed();
        return;
      }
      if (entry.isReached === false) return;
      if (isReached === false) entry.failures += 1;
      if (entry.failures >= FAILURES) return set(source, entry, false);
      entry.checkAtMs = Math.min(entry.checkAtMs, now() + CONFIRM_MS);
      due.wakeUp();
    },
    begun(source) {
      const entry = entries.get(source);
      if (entry === undefined) return;
      // The result of a check stays: without it the former holder could not know any more that it is cut off.
      const isReached = entry.isReached === true ? true : null;
      Object.assign(entry, { isReached, isPolled: false, failures: 0, failedChecks: 0 });
      entry.checkAtMs = Number.POSITIVE_INFINITY;
    },
    seen(view) {
      const others = view.members.filter((each) => each.gone === null && each.name !== name);
      const falseOf = others.flatMap(({ reach }) => Object.keys(reach).filter((key) => reach[key] === false));
      listed = new Set(falseOf);
      wanted = new Set(
        view.sources
          .filter((row) => holderOf(row, view)?.name !== name && holderOf(row, view)?.reach[row.name] === false)
          .map((row) => row.name),
      );
      isCut = [...entries].some(
        ([source, { isReached }]) => isReached === false && others.some(({ reach }) => isReachedIn(reach, source)),
      );
      // Results that no member needs any more are forgotten, and checked again when one needs them.
      if (!isCut)
        for (const [source, entry] of entries)
          if (!isHeld(source) && entry.isReached === true && !listed.has(source)) entry.isReached = null;
      judgeTrial(view);
      plan();
    },
    report: () =>
      Object.fromEntries(
        [...entries].flatMap(([source, entry]): readonly (readonly [string, boolean | "checked"])[] => {
          const { isReached } = entry;
          if (isReached === null) return [];
          if (!isReached) return [[source, false]];
          return isAskedFor(source) ? [[source, (isHeld(source) && entry.isPolled) || "checked"]] : [];
        }),
      ),
    isUnreached: (source) => isHeld(source) && entries.get(source)?.isReached === false,
    mayGive(source, view) {
      judgeTrial(view);
      const entry = entries.get(source);
      if (trial !== null || entry === undefined) return false;
      const isOpen = now() < openUntilMs;
      if (!isOpen && now() < nextTrialMs) return false;
      if (isOpen) openUntilMs = now() + OPEN_MS;
      else trial = { source, sinceMs: now() };
      entry.timesLeft += 1;
      entry.leftUntilMs = now() + backoffMs(LEFT, entry.timesLeft, random);
      entry.checkAtMs = entry.leftUntilMs;
      return true;
    },
    async turn(signal) {
      const list = [...entries].filter(([, entry]) => isDue(entry)).slice(0, CHECKS_AT_ONCE);
      await Promise.all(list.map(([source, entry]) => checkOne(source, entry, signal)));
      return Math.max(0, Math.min(...[...entries.values()].map(({ checkAtMs }) => checkAtMs)) - now());
    },
    nextMs() {
      const untilMs = trial === null ? nextTrialMs : trial.sinceMs + TRIAL_MS;
      return untilMs > now() ? untilMs - now() : Number.POSITIVE_INFINITY;
    },
    notices() {
      const unreached = [...entries].filter(([, { isReached }]) => isReached === false);
      if (unreached.length === 0 || !isCut) return [];
      const names = unreached.map(([source]) => source).join(", ");
      return [
        `This member does not reach the services of ${names}, and another member does: it hands those over. Look at the network of this machine.`,
      ];
    },
  };
}
