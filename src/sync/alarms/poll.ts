import type { Gateway, Host } from "../../building.ts";
import { isoUtc } from "../../clock.ts";
import { type Failure, meaningOf, OwnTrouble } from "../../errors.ts";
import { sourceUri } from "../../event.ts";
import { type DocumentChange, documentSet } from "../../store/store.ts";
import { type OneAtATime, othersTurn, withOthersTurns } from "../../waiting.ts";
import { behindGateway } from "../inventory/behind-gateway.ts";
import { incomplete, type JobOutcome } from "../job.ts";
import { isRefusal, outcomeOf } from "../per-site.ts";
import type { PollParts } from "../poll-parts.ts";
import { type Held, type HeldAlarm, type HeldAlarmSite, type HeldSweep, syncSet } from "../snapshot.ts";
import { createActiveCounts } from "./active-counts.ts";
import { isOpen } from "./diff-alarm.ts";
import { type AlarmDiff, absentees, diffAlarms, type Scope } from "./diff-alarms.ts";
import { inParts } from "./diff-parts.ts";
import { createDoubtfulRecords } from "./doubtful-records.ts";
import { createDoubts } from "./doubts.ts";
import { contradictsItself, isResolved } from "./episode.ts";
import { type ActiveAlarms, bothReadings, createAlarmList } from "./list.ts";
import { createMassGuard, massEnds, massOf } from "./mass-change.ts";
import { createOvertakenEnds } from "./overtaken.ts";
import { createPatience } from "./patience.ts";
import { forgotten } from "./retention.ts";
import { PAGES, searchAlarms } from "./search.ts";
import { instant } from "./times.ts";

export interface AlarmPoll {
  run(signal: AbortSignal): Promise<JobOutcome>;
  /** The first poll after the service was away: everything is read twice, and told only when both agree. */
  reconcile(signal: AbortSignal): Promise<JobOutcome>;
}

/** How often it is asked whether the scope has grown, where no list would show it, in milliseconds. */
const SCOPE_CHECK_MS = 300_000;
/** Of so many alarms at most what is new is compared or committed at once: 5,000 would stop everything for half a second. */
const PART = 250;

/** Follows the active alarms of one source: list, ask after what left it, compare, commit. */
export function createAlarmPoll(parts: PollParts, alone: OneAtATime): AlarmPoll {
  const { source, config, clock, log, metrics, scope, holding } = parts;
  const { alarms: settings } = config;
  const alarmSet = documentSet("alarm", source.name);
  const siteSet = syncSet("alarm-site", source.name);
  const startedAt = isoUtc(clock.now());
  const takenOver = new Set<number>();
  const held = () => holding.get<HeldAlarm>(alarmSet);
  const isVisible = (siteId: number) => scope.known()?.has(siteId) ?? false;
  const isHidden = (known: HeldAlarm) => scope.known() !== null && !isVisible(known.alarm.site.id);
  const list = createAlarmList({
    source,
    only: settings.sites ?? null,
    sites: () => scope.known() ?? holding.get(documentSet("site", source.name)).keys().map(Number),
    held: (id) => held().get(id)?.alarm,
    clock,
    log,
  });
  const doubts = createDoubts();
  const guard = createMassGuard(log);
  const patience = createPatience(settings.vanish_after_misses);
  const overtakenEnds = createOvertakenEnds({
    source,
    clock,
    maxPages: PAGES,
    always: settings.vanish_after_misses,
  });
  const showActive = createActiveCounts(source.name, metrics);
  const doubtful = createDoubtfulRecords(source.name, metrics, log);

  /** Asks after absent alarms, site by site; a site that refuses or fails simply brings no evidence. */
  async function search(
    worth: readonly HeldAlarm[],
    isLast: (known: HeldAlarm) => boolean,
    signal: AbortSignal,
  ) {
    const visible = worth.filter((known) => !isHidden(known));
    const bySite = Map.groupBy(visible, (known) => known.alarm.site.id);
    const results = [];
    const failures = new Map<number, Failure>();
    for (const [siteId, known] of bySite) {
      const last = known.filter(isLast);
      const wanted = known.filter((one) => !isLast(one));
      try {
        results.push(
          await searchAlarms(siteId, wanted, last, { source, maxPages: settings.resolved_pages_max }, signal),
        );
      } catch (error) {
        signal.throwIfAborted();
        const failure = meaningOf(error);
        if (failure instanceof OwnTrouble) throw failure;
        failures.set(siteId, failure);
      }
    }
    return {
      found: results.flatMap((result) => result.found),
      searched: new Set(results.flatMap((result) => result.searched)),
      failures,
    };
  }

  /** Whether the list lacks so many of the known active alarms that it has to be read again. */
  function isDrop(seen: ActiveAlarms): boolean {
    const shown = new Set(seen.listed.map((alarm) => alarm.id));
    const isObserved = (siteId: number) => seen.coverage(siteId) === "complete";
    return massOf(held(), ({ alarm }) => !shown.has(alarm.id), isObserved) !== null;
  }

  /** Ids of the alarms whose end a second reading states again, where many ended at once. */
  async function confirmedEnds(diff: AlarmDiff, signal: AbortSignal): Promise<ReadonlySet<string>> {
    const ended = massEnds(held(), diff);
    if (ended.size === 0) return ended;
    const known = [...ended].flatMap((id) => held().get(id) ?? []);
    const again = await search(known, () => false, signal);
    return new Set(again.found.filter(isResolved).map(({ id }) => id));
  }

  async function readList(careful: boolean, signal: AbortSignal): Promise<ActiveAlarms> {
    const seen = await list.read(careful, signal);
    if (careful || !isDrop(seen)) return seen;
    return bothReadings(seen, await list.read(false, signal));
  }

  async function poll(careful: boolean, signal: AbortSignal): Promise<JobOutcome> {
    await lookForNewScope(signal);
    const seen = await readList(careful, signal);
    if (careful && seen.reasons.length > 0) return incomplete(seen.reasons.join(" "));

    const sifted = doubts.sift(held(), seen.listed, seen.coverage);
    const { listed, doubted } = sifted;
    const ends = await overtakenEnds.settle(held(), sifted.overtaken, signal);
    const absent = absentees(held(), { listed, coverage: seen.coverage }, isVisible);
    const worth = patience.worthAsking(absent);
    // An alarm with a doubtful record in the list is not about to vanish.
    const isLast = ({ alarm, misses }: HeldAlarm) =>
      misses + 1 >= settings.vanish_after_misses && !doubted.has(alarm.id);
    const asked = await search(worth, isLast, signal);
    const unclear = asked.found.filter((alarm) => alarm.status === "active" && contradictsItself(alarm));
    const found = new Set(asked.found.map((alarm) => alarm.id));
    const refused = new Set(
      [...seen.failures].filter(([, failure]) => isRefusal(failure)).map(([siteId]) => siteId),
    );
    const hidden = held()
      .values()
      .filter((known) => isFollowed(known) && isHidden(known))
      .toArray();
    // What the list shows needs no explanation, though the token's word does not name its site.
    const shownIds = new Set(hidden.length === 0 ? [] : listed.map(({ id }) => id));
    // The scope is looked at with each reading that is to confirm a drop, and else when an alarm is asked after: one that
    // stays absent for hours, such as one that ended by a word that nobody knows, costs no look at every poll.
    const dropped = absent.filter((known) => guard.isOpen(known.alarm.site.id));
    const unexplained =
      [...worth, ...dropped].some((known) => !found.has(known.alarm.id)) ||
      hidden.some((known) => !shownIds.has(known.alarm.id)) ||
      held()
        .values()
        .some((known) => isFollowed(known) && refused.has(known.alarm.site.id));
    const seenScope: Scope | null = unexplained ? await scope.tryRefresh(signal) : null;

    const sites = holding.get<HeldAlarmSite>(siteSet);
    const at = isoUtc(clock.now());
    const compared = diffAlarms(
      held(),
      {
        listed,
        insisted: sifted.insisted.difference(ends.stale).union(ends.believed),
        corrected: sifted.corrected,
        doubted: new Set([...doubted, ...unclear.map((alarm) => alarm.id)]),
        coverage: seen.coverage,
        found: asked.found.filter((alarm) => !unclear.includes(alarm)),
        searched: asked.searched,
        scope: seenScope,
      },
      {
        source: sourceUri(source.name),
        at,
        late: false,
        behindGateway: behindGateway(
          holding.get<Held<Gateway>>(documentSet("gateway", source.name)),
          holding.get<Held<Host>>(documentSet("host", source.name)),
        ),
        vanishAfterMisses: settings.vanish_after_misses,
        isKnownSite: (siteId) => (sites.get(String(siteId))?.activeSince ?? null) !== null,
        startup: settings.startup,
        startedAt,
        isTakenOver: (siteId) => takenOver.has(siteId),
      },
    );
    const whole = await withOthersTurns(compared, PART, clock, signal);
    const confirmed = await confirmedEnds(whole, signal);
    const { diff, remarks: masses } = guard.judge(held(), whole, { coverage: seen.coverage, confirmed });
    const covered = [
      ...new Set([...(scope.known() ?? []), ...seen.listed.map((alarm) => alarm.site.id)]),
    ].filter((siteId) => seen.coverage(siteId) === "complete");
    const known: DocumentChange[] = [
      { set: alarmSet, remove: forgottenIds(diff.put) },
      { set: siteSet, put: newlyKnown(covered, at) },
    ];
    for (const part of inParts(diff, PART)) {
      const documents: DocumentChange[] = [{ set: alarmSet, put: part.put }, ...(part.isLast ? known : [])];
      await parts.commit("alarms", { documents, events: part.events }, careful);
      if (!part.isLast) await othersTurn(clock, signal);
    }
    patience.committed(absent);
    doubts.committed();
    overtakenEnds.committed();
    for (const siteId of covered) takenOver.add(siteId);
    showActive(held());
    const remarks = [...seen.remarks, ...masses, ...doubtful.tell(sifted, ends, seen.unreadable)];
    return outcomeOf(new Map([...ends.failures, ...asked.failures, ...seen.failures]), seen.reasons, remarks);
  }

  /** Lists of single sites show no site that is not known of, and an alarm out of scope may never be listed again. */
  async function lookForNewScope(signal: AbortSignal): Promise<void> {
    if (clock.monotonic() - scope.saidAtMs() < SCOPE_CHECK_MS) return;
    const outside = () =>
      held()
        .values()
        .some((known) => known.state === "out-of-scope");
    if (list.wasPerSite() || outside()) await scope.tryRefresh(signal);
  }

  function forgottenIds(put: ReadonlyMap<string, HeldAlarm>): readonly string[] {
    const sweep = holding.get<HeldSweep>(syncSet("sweep", source.name)).get("resolved");
    const sites = holding.get<HeldAlarmSite>(siteSet);
    return forgotten(held(), put, {
      nowMs: clock.now(),
      overlapMs: settings.resolved_overlap,
      // A site that is out of sight is swept on from where it left.
      sweptMsOf: (siteId) =>
        instant(sites.get(String(siteId))?.sweptUntil ?? null) ?? instant(sweep?.watermark ?? null),
    });
  }

  function newlyKnown(siteIds: readonly number[], at: string): readonly (readonly [string, HeldAlarmSite])[] {
    const sites = holding.get<HeldAlarmSite>(siteSet);
    return siteIds.flatMap((siteId) => {
      const known = sites.get(String(siteId));
      if (known !== undefined && known.activeSince !== null) return [];
      return [[String(siteId), { resolvedSince: null, ...known, activeSince: at }] as const];
    });
  }

  return {
    run: (signal) => alone(() => poll(false, signal)),
    reconcile: (signal) => alone(() => poll(true, signal)),
  };
}

function isFollowed(known: HeldAlarm): boolean {
  return isOpen(known) && known.state !== "out-of-scope";
}
