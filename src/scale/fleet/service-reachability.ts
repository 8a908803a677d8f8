import { backoffMs } from "../../core/runtime/backoff.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import type { Wakeup } from "../../core/runtime/waiting.ts";
import { isServiceReached, type ServiceReachBySource } from "./assign-sources.ts";
import { type FleetTables, findHolder } from "./fleet-tables.ts";

const FAILURES_UNTIL_UNREACHABLE = 2;
/** Delay of the health check that follows the first failed request, because the next poll may be far away. */
const HEALTH_CHECK_DELAY_MS = 2_000;
const MAX_HEALTH_CHECKS = 5;
const HEALTH_CHECK_BACKOFF = { firstMs: 10_000, maxMs: 60_000 };
/** For this time after a handover, a member does not take the source back, even if the health check succeeds. */
const SOURCE_RETURN_BACKOFF = { firstMs: 15_000, maxMs: 900_000 };
const TRIAL_HANDOVER_BACKOFF = { firstMs: 60_000, maxMs: 1_800_000 };
const TRIAL_HANDOVER_LIMIT_MS = 60_000;
/** After a successful trial handover of one source, the other sources may be handed over within this time. */
const FOLLOW_UP_HANDOVER_WINDOW_MS = 60_000;

const NEVER_PLANNED_MS = Number.POSITIVE_INFINITY;

interface ServiceReachState {
  isReached: boolean | null;
  /** True if the service has responded to a poll since this member took the source. */
  isPolled: boolean;
  failures: number;
  failedChecks: number;
  checkAtMs: number;
  handoverCount: number;
  noReturnUntilMs: number;
}

/**
 * Compares which services this and other members reach: by polls for a held source, otherwise by health checks.
 *
 *   a holds s1   two failures in a row ─► s1: false ┐
 *   b                     checks s1 ────► s1: true  ┴─► a hands s1 over to b as a trial; b polls s1 ─► a hands over the rest
 *
 * A failed trial is repeated after growing waits. If no member reaches a service, its source stays where it is.
 */
export function createServiceReachability(options: {
  readonly name: string;
  readonly sources: readonly string[];
  readonly isHeld: (source: string) => boolean;
  /** Runs a health check, which needs no quota; returns false without a response. */
  readonly checkHealth: (source: string, signal: AbortSignal) => Promise<boolean>;
  readonly onChanged: () => void;
  readonly checkDueWakeup: Wakeup;
  readonly clock: Clock;
  readonly random?: (() => number) | undefined;
}) {
  const { name, sources, isHeld, checkHealth, onChanged, checkDueWakeup, clock, random } = options;
  const serviceStates = new Map(
    sources.map((source): [string, ServiceReachState] => [
      source,
      {
        ...{ isReached: null, isPolled: false, failures: 0, failedChecks: 0, handoverCount: 0 },
        ...{ checkAtMs: NEVER_PLANNED_MS, noReturnUntilMs: Number.NEGATIVE_INFINITY },
      },
    ]),
  );
  let unreachedByOthers: ReadonlySet<string> = new Set();
  let isCutOff = false;
  let trialHandover: { readonly source: string; readonly sinceMs: number } | null = null;
  let failedTrialHandoverCount = 0;
  let nextTrialMs = Number.NEGATIVE_INFINITY;
  let followUpUntilMs = Number.NEGATIVE_INFINITY;
  const now = () => clock.monotonic();
  const isHealthCheckDue = ({ checkAtMs }: ServiceReachState) => checkAtMs <= now();
  const isReachResultNeeded = (source: string) => unreachedByOthers.has(source) || (isCutOff && !isHeld(source));

  function setServiceReached(source: string, service: ServiceReachState, isReached: boolean): void {
    if (isReached) service.failures = 0;
    const wasReached = service.isReached;
    if (wasReached === isReached) return;
    service.isReached = isReached;
    // Health checks made before the failure are outdated.
    if (!isReached && isHeld(source))
      for (const [otherSource, otherService] of serviceStates)
        if (!isHeld(otherSource) && otherService.isReached === true) otherService.isReached = null;
    if (!isReached || wasReached === false || isReachResultNeeded(source)) onChanged();
  }

  async function checkServiceHealth(source: string, service: ServiceReachState, signal: AbortSignal): Promise<void> {
    const isServiceResponding = await checkHealth(source, signal);
    service.checkAtMs = NEVER_PLANNED_MS;
    if (isHeld(source)) {
      // For a held source, only a poll proves that the service responds. A failed check confirms a poll's failure.
      if (!isServiceResponding) setServiceReached(source, service, false);
      return;
    }
    service.failedChecks = isServiceResponding ? 0 : service.failedChecks + 1;
    if (isServiceResponding && now() >= service.noReturnUntilMs) return setServiceReached(source, service, true);
    const recheckAtMs = now() + backoffMs(HEALTH_CHECK_BACKOFF, Math.max(1, service.failedChecks), random);
    service.checkAtMs = isServiceResponding ? service.noReturnUntilMs : recheckAtMs;
    setServiceReached(source, service, false);
  }

  function endTrialHandover(isSuccessful: boolean): void {
    trialHandover = null;
    failedTrialHandoverCount = isSuccessful ? 0 : failedTrialHandoverCount + 1;
    if (isSuccessful) followUpUntilMs = now() + FOLLOW_UP_HANDOVER_WINDOW_MS;
    else nextTrialMs = now() + backoffMs(TRIAL_HANDOVER_BACKOFF, failedTrialHandoverCount, random);
  }

  /** Ends the trial handover once polls of the new holder show whether the service responds there. */
  function endDecidedTrialHandover(view: FleetTables): void {
    if (trialHandover === null) return;
    const { source, sinceMs } = trialHandover;
    const row = view.sources.find((each) => each.name === source);
    const newHolder = row === undefined ? null : findHolder(row, view);
    const reachByNewHolder = newHolder === null || newHolder.name === name ? undefined : newHolder.reach[source];
    // The value "checked" is older than the handover: the new member reached the service before it took the source.
    if (typeof reachByNewHolder === "boolean") endTrialHandover(reachByNewHolder);
    else if (now() - sinceMs >= TRIAL_HANDOVER_LIMIT_MS) endTrialHandover(false);
  }

  return {
    noteRequest(source: string, isReached: boolean | null) {
      const service = serviceStates.get(source);
      if (service === undefined) return;
      if (isReached === true) {
        const isFirstPoll = !service.isPolled;
        service.isPolled = true;
        setServiceReached(source, service, true);
        if (isFirstPoll && isReachResultNeeded(source)) onChanged();
        return;
      }
      if (service.isReached === false) return;
      if (isReached === false) service.failures += 1;
      if (service.failures >= FAILURES_UNTIL_UNREACHABLE) return setServiceReached(source, service, false);
      service.checkAtMs = Math.min(service.checkAtMs, now() + HEALTH_CHECK_DELAY_MS);
      checkDueWakeup.wakeUp();
    },
    beginSource(source: string): void {
      const service = serviceStates.get(source);
      if (service === undefined) return;
      // Keep a successful check: it shows the former holder that the service responds to other members.
      const isReached = service.isReached === true ? true : null;
      Object.assign(service, { isReached, isPolled: false, failures: 0, failedChecks: 0, checkAtMs: NEVER_PLANNED_MS });
    },
    applyFleetTables(view: FleetTables): void {
      const otherFleetMembers = view.members.filter((each) => each.gone === null && each.name !== name);
      unreachedByOthers = new Set(
        otherFleetMembers.flatMap(({ reach }) => Object.keys(reach).filter((source) => reach[source] === false)),
      );
      const sourcesUnreachedByHolder = new Set(
        view.sources
          .filter((row) => findHolder(row, view)?.name !== name && findHolder(row, view)?.reach[row.name] === false)
          .map((row) => row.name),
      );
      isCutOff = [...serviceStates].some(
        ([source, service]) =>
          service.isReached === false && otherFleetMembers.some(({ reach }) => isServiceReached(reach, source)),
      );
      endDecidedTrialHandover(view);
      for (const [source, service] of serviceStates) {
        if (isHeld(source)) continue;
        // Delete a check result that no member needs; the check is repeated when a member needs it.
        if (!isCutOff && service.isReached === true && !unreachedByOthers.has(source)) service.isReached = null;
        const isServiceReachUnknown = service.isReached === null && service.checkAtMs === NEVER_PLANNED_MS;
        if (isServiceReachUnknown && (isCutOff || sourcesUnreachedByHolder.has(source))) service.checkAtMs = now();
      }
      if ([...serviceStates.values()].some(isHealthCheckDue)) checkDueWakeup.wakeUp();
    },
    report: (): ServiceReachBySource =>
      Object.fromEntries(
        [...serviceStates].flatMap(([source, { isReached, isPolled }]): readonly [string, boolean | "checked"][] => {
          if (isReached === false) return [[source, false]];
          if (isReached !== true || !isReachResultNeeded(source)) return [];
          return [[source, (isHeld(source) && isPolled) || "checked"]];
        }),
      ),
    isUnreached: (source: string) => isHeld(source) && serviceStates.get(source)?.isReached === false,
    /** Returns whether a source whose service does not respond may be handed over now; first as a trial. */
    mayHandOver(source: string, view: FleetTables): boolean {
      endDecidedTrialHandover(view);
      const service = serviceStates.get(source);
      const isFollowUpHandover = now() < followUpUntilMs;
      if (trialHandover !== null || service === undefined || (!isFollowUpHandover && now() < nextTrialMs)) return false;
      if (isFollowUpHandover) followUpUntilMs = now() + FOLLOW_UP_HANDOVER_WINDOW_MS;
      else trialHandover = { source, sinceMs: now() };
      service.handoverCount += 1;
      service.noReturnUntilMs = now() + backoffMs(SOURCE_RETURN_BACKOFF, service.handoverCount, random);
      service.checkAtMs = service.noReturnUntilMs;
      return true;
    },
    async checkServices(signal: AbortSignal): Promise<number> {
      const dueServices = [...serviceStates]
        .filter(([, service]) => isHealthCheckDue(service))
        .slice(0, MAX_HEALTH_CHECKS);
      await Promise.all(dueServices.map(([source, service]) => checkServiceHealth(source, service, signal)));
      return Math.max(0, Math.min(...[...serviceStates.values()].map(({ checkAtMs }) => checkAtMs)) - now());
    },
    /** Returns the milliseconds after which `mayHandOver` may return another result. */
    waitMs(): number {
      const nextHandoverMs = trialHandover === null ? nextTrialMs : trialHandover.sinceMs + TRIAL_HANDOVER_LIMIT_MS;
      return nextHandoverMs > now() ? nextHandoverMs - now() : NEVER_PLANNED_MS;
    },
    notices(): readonly string[] {
      const unreached = [...serviceStates].filter(([, { isReached }]) => isReached === false).map(([source]) => source);
      if (unreached.length === 0 || !isCutOff) return [];
      return [
        `This member does not reach the services of ${unreached.join(", ")}, and another member does: it hands those over. Look at the network of this machine.`,
      ];
    },
  };
}

export type ServiceReachability = ReturnType<typeof createServiceReachability>;
