import { type Failure, LocalFailure, meaningOf } from "../../../core/errors/errors.ts";
import type { Alarm, Gateway, Host } from "../../../core/model/building.ts";
import { sourceUri } from "../../../core/model/event.ts";
import { type OneAtATime, runInSlices, yieldUnlessAborted } from "../../../core/runtime/waiting.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import { type DocumentChange, documentSet } from "../../store/store.ts";
import { behindGateway } from "../inventory/behind-gateway.ts";
import { incomplete, type JobOutcome } from "../job.ts";
import { isRefusal, outcomeOf } from "../per-site.ts";
import type { PollParts } from "../poll-parts.ts";
import { type Listed, type StoredAlarm, type StoredAlarmSite, type StoredSweep, syncSet } from "../snapshot.ts";
import { isOpen } from "./diff-alarm.ts";
import { type AlarmDiff, type AlarmDiffOptions, absentees, diffAlarms, type Scope } from "./diff-alarms.ts";
import { inParts } from "./diff-parts.ts";
import { contradictsItself, isEmittedEnd, isOverBefore, isResolved } from "./episode.ts";
import { createPollInterval } from "./interval.ts";
import { type ActiveAlarms, bothReadings, createAlarmList, type ReadActive } from "./list.ts";
import { createMassGuard, massEnds, massOf } from "./mass-change.ts";
import { createOvertakenEnds } from "./overtaken.ts";
import { createPatience } from "./patience.ts";
import { createPendingVerification, isUndisputed } from "./pending-verification.ts";
import { forgotten } from "./retention.ts";
import { PAGES, searchAlarms } from "./search.ts";
import { instant } from "./times.ts";
import { createUnverifiedRecords } from "./unverified-records.ts";

export interface AlarmPoll {
  run(signal: AbortSignal): Promise<JobOutcome>;
  /**
   * The first poll after the service was away: everything is read twice, and an absence counts only when both agree. What
   * a page shows is emitted when it arrives, as ever, after the news that the service is back.
   */
  reconcile(signal: AbortSignal): Promise<JobOutcome>;
}

/** How often it is asked whether the scope has grown, where no list would show it, in milliseconds. */
const SCOPE_CHECK_MS = 300_000;
/** Alarms compared or committed at once: 5,000 would stop the event loop for half a second. */
const PART = 250;
/** A step over all of so many alarms takes 5 to 10 ms. */
const MANY = 5_000;

/** Follows the active alarms of one source: list, ask after what left it, compare, commit. */
export function createAlarmPoll(
  parts: PollParts,
  alone: OneAtATime,
  /** Configured time from one poll to the next, in milliseconds; null where there is none. */
  everyMs: () => number | null = () => null,
): AlarmPoll {
  const { source, config, clock, log, metrics, scope, syncState: holding } = parts;
  const { alarms: settings } = config;
  const alarmSet = documentSet("alarm", source.name);
  const siteSet = syncSet("alarm-site", source.name);
  const startedAt = isoUtc(clock.now());
  const takenOver = new Set<number>();
  /** Ids that pages showed since the start, of sites that were not listed completely since then. */
  const shownSinceStart = new Set<string>();
  const held = () => holding.get<StoredAlarm>(alarmSet);
  const isVisible = (siteId: number) => scope.known()?.has(siteId) ?? false;
  const isHidden = (known: StoredAlarm) => scope.known() !== null && !isVisible(known.alarm.site.id);
  const list = createAlarmList({
    source,
    only: settings.sites ?? null,
    sites: () => scope.known() ?? holding.get(documentSet("site", source.name)).keys().map(Number),
    held: (id) => held().get(id)?.alarm,
    clock,
    log,
  });
  const doubts = createPendingVerification();
  const guard = createMassGuard(log);
  const patience = createPatience(settings.vanish_after_misses);
  const overtakenEnds = createOvertakenEnds({
    source,
    clock,
    maxPages: PAGES,
    always: settings.vanish_after_misses,
  });
  const interval = createPollInterval(clock, everyMs, () => source.listRate());
  let pages = 0;
  const doubtful = createUnverifiedRecords(source.name, metrics, log);

  /**
   * Asks after absent alarms, site by site; a site that refuses or fails simply brings no evidence. Sites that are left
   * over after half of the poll interval wait for the next poll: 150 sites at 30 lists a minute would delay it by 5 minutes.
   */
  async function search(worth: readonly StoredAlarm[], isLast: (known: StoredAlarm) => boolean, signal: AbortSignal) {
    const untilMs = clock.monotonic() + (everyMs() ?? Number.POSITIVE_INFINITY) / 2;
    const visible = worth.filter((known) => !isHidden(known));
    const bySite = Map.groupBy(visible, (known) => known.alarm.site.id);
    const results = [];
    const failures = new Map<number, Failure>();
    const waiting: StoredAlarm[] = [];
    for (const [siteId, known] of bySite) {
      if (clock.monotonic() >= untilMs) {
        waiting.push(...known);
        continue;
      }
      const last = known.filter(isLast);
      const wanted = known.filter((one) => !isLast(one));
      try {
        results.push(
          await searchAlarms(siteId, wanted, last, { source, maxPages: settings.resolved_pages_max }, signal),
        );
      } catch (error) {
        signal.throwIfAborted();
        const failure = meaningOf(error);
        if (failure instanceof LocalFailure) throw failure;
        failures.set(siteId, failure);
      }
    }
    return {
      found: results.flatMap((result) => result.found),
      searched: new Set(results.flatMap((result) => result.searched)),
      failures,
      waiting,
    };
  }

  /** Whether the list lacks so many of the alarms that were known as active that it has to be read again. */
  function isDrop(before: Alarms, seen: ActiveAlarms): boolean {
    const shown = new Set(seen.listed.map((alarm) => alarm.id));
    const isObserved = (siteId: number) => seen.coverage(siteId) === "complete";
    return massOf(before, ({ alarm }) => !shown.has(alarm.id), isObserved) !== null;
  }

  /** Ids of the alarms whose end a second reading states again, where many ended at once. */
  async function confirmedEnds(before: Alarms, diff: AlarmDiff, signal: AbortSignal): Promise<ReadonlySet<string>> {
    const ended = massEnds(before, diff);
    if (ended.size === 0) return ended;
    const known = [...ended].flatMap((id) => held().get(id) ?? []);
    const again = await search(known, () => false, signal);
    return new Set(again.found.filter(isResolved).map(({ id }) => id));
  }

  function diffOptions(at: string): AlarmDiffOptions {
    const sites = holding.get<StoredAlarmSite>(siteSet);
    return {
      source: sourceUri(source.name),
      at,
      late: false,
      behindGateway: behindGateway(
        holding.get<Listed<Gateway>>(documentSet("gateway", source.name)),
        holding.get<Listed<Host>>(documentSet("host", source.name)),
        parts.offlineGatewayOf,
      ),
      vanishAfterMisses: settings.vanish_after_misses,
      isKnownSite: (siteId) => (sites.get(String(siteId))?.activeSince ?? null) !== null,
      startup: settings.startup,
      startedAt,
      isTakenOver: ({ id, site }) => takenOver.has(site.id) || shownSinceStart.has(id),
    };
  }

  /**
   * Emits the alarms of a page before the next page arrives, when nothing else can change their meaning. A page that cannot be
   * committed waits for the complete list, and so do the pages after it. `returning`: after an outage, `source-available` comes
   * first, because gateway events wait for it.
   */
  function pageEmitter(returning: boolean, signal: AbortSignal): ReadActive["onPage"] {
    let isFailing = false;
    let isAwayTold = returning;
    return async (records) => {
      pages += 1;
      if (isFailing) return;
      const listed = records.filter((record) => {
        const known = held().get(record.id);
        return !(known?.alarm === record && known.state === "active") && isUndisputed(known, record);
      });
      if (listed.length === 0) return;
      if (isAwayTold) await parts.commit("alarms", {}, returning);
      isAwayTold = false;
      const gateways = parts.beforeNewAlarms(sitesWithNews(listed), signal);
      if (gateways !== null) await gateways;
      const known = new Map(listed.flatMap(({ id }) => [...entryOf(held(), id)]));
      const shows = { listed, coverage: () => "moving" as const, found: [], searched: new Set<string>() };
      const steps = diffAlarms(known, { ...shows, scope: null }, diffOptions(isoUtc(clock.now())));
      try {
        const diff = await runInSlices(steps, PART, clock, signal);
        for (const part of inParts(diff, PART)) {
          await parts.commit("alarms", {
            documents: [{ set: alarmSet, put: part.put }],
            events: part.events,
          });
          await yieldUnlessAborted(clock, signal);
        }
        if (settings.startup === "reconcile") return;
        for (const { id, site } of listed) if (!takenOver.has(site.id)) shownSinceStart.add(id);
      } catch (error) {
        isFailing = true;
        log.debug({ err: error }, "a page of active alarms was not committed");
      }
    };
  }

  /** Lets others have their turn between two steps over all of so many alarms, where they are many. */
  async function amongMany(alarms: number, signal: AbortSignal): Promise<void> {
    if (alarms >= MANY) await yieldUnlessAborted(clock, signal);
  }

  async function poll(careful: boolean, signal: AbortSignal): Promise<JobOutcome> {
    interval.began();
    pages = 0;
    await lookForNewScope(signal);
    // A mass change is measured against what was known before this poll.
    const before: Alarms = new Map(held());
    const askedAtMs = clock.now();
    const onPage = pageEmitter(careful, signal);
    const readAgain = async (seen: ActiveAlarms) =>
      bothReadings(seen, await list.read({ careful: false, onPage, signal }));
    let seen = await list.read({ careful, onPage, signal });
    await amongMany(seen.listed.length, signal);
    if (!careful && isDrop(before, seen)) seen = await readAgain(seen);
    await amongMany(seen.listed.length, signal);
    if (careful && seen.reasons.length > 0) return incomplete(seen.reasons.join(" "));

    let sifted = doubts.sift(held(), seen.listed, seen.coverage);
    await amongMany(seen.listed.length, signal);
    const absentNow = () => absentees(held(), { listed: sifted.listed, coverage: seen.coverage }, isVisible);
    let absent = absentNow();
    const worth = patience.worthAsking(absent);
    // An alarm with a doubtful record in the list is not about to vanish.
    const isLast = ({ alarm, misses }: StoredAlarm) =>
      misses + 1 >= settings.vanish_after_misses && !sifted.doubted.has(alarm.id);
    const asked = await search(worth, isLast, signal);
    const waiting = new Set(asked.waiting.map(({ alarm }) => alarm.id));
    const unclear = asked.found.filter((alarm) => alarm.status === "active" && contradictsItself(alarm));
    const found = Map.groupBy(asked.found, (alarm) => alarm.id);
    // Checks the scope with each reading that may confirm a drop, and when an alarm is searched. An alarm that stays absent for
    // hours costs no request per poll.
    const looked = [...worth, ...absent.filter((known) => guard.isOpen(known.alarm.site.id))];
    const isExplained = (known: StoredAlarm) =>
      (found.get(known.alarm.id) ?? []).some((word) => !isResolved(word) || isEndOf(known, word));
    if (!seen.isConfirmed && looked.some((known) => !isExplained(known))) {
      seen = await readAgain(seen);
      sifted = doubts.sift(held(), seen.listed, seen.coverage);
      absent = absentNow();
    }
    const { listed, doubted } = sifted;
    const ends = await overtakenEnds.settle(held(), sifted.overtaken, signal);
    const refused = new Set([...seen.failures].filter(([, failure]) => isRefusal(failure)).map(([siteId]) => siteId));
    const hidden = held()
      .values()
      .filter((known) => isFollowed(known) && isHidden(known))
      .toArray();
    // A listed alarm needs no explanation, even when the token's scope lacks its site.
    const shownIds = new Set(hidden.length === 0 ? [] : listed.map(({ id }) => id));
    const unexplained =
      looked.some((known) => !found.has(known.alarm.id)) ||
      hidden.some((known) => !shownIds.has(known.alarm.id)) ||
      held()
        .values()
        .some((known) => isFollowed(known) && refused.has(known.alarm.site.id));
    const seenScope: Scope | null = unexplained ? await scope.tryRefresh(signal) : null;

    // An unexplained absence in pages that were read once proves nothing yet.
    const unconfirmed = seen.isConfirmed ? [] : absent.filter((known) => !isExplained(known));
    const gateways = parts.beforeNewAlarms(sitesWithNews(listed), signal);
    if (gateways !== null) await gateways;
    const compared = diffAlarms(
      held(),
      {
        listed,
        insisted: sifted.insisted.difference(ends.stale).union(ends.believed),
        corrected: sifted.corrected,
        doubted: new Set([...doubted, ...idsOf(unclear), ...waiting, ...unconfirmed.map(({ alarm }) => alarm.id)]),
        coverage: seen.coverage,
        found: asked.found.filter((alarm) => !unclear.includes(alarm)),
        searched: asked.searched,
        scope: seenScope,
      },
      diffOptions(isoUtc(clock.now())),
    );
    const whole = await runInSlices(compared, PART, clock, signal);
    const confirmed = await confirmedEnds(before, whole, signal);
    const { diff, remarks: masses } = guard.judge(before, whole, { coverage: seen.coverage, confirmed });
    const covered = [...new Set([...(scope.known() ?? []), ...seen.listed.map((alarm) => alarm.site.id)])].filter(
      (siteId) => seen.coverage(siteId) === "complete",
    );
    // Alarms that began after this request, by the service's clock, are new.
    const followedSince = isoUtc(askedAtMs - (source.clockSkewMs() ?? 0));
    const known: DocumentChange[] = [
      { set: alarmSet, remove: forgottenIds(diff.put) },
      { set: siteSet, put: newlyKnown(covered, followedSince) },
    ];
    for (const part of inParts(diff, PART)) {
      const documents: DocumentChange[] = [{ set: alarmSet, put: part.put }, ...(part.isLast ? known : [])];
      await parts.commit("alarms", { documents, events: part.events }, careful);
      if (!part.isLast) await yieldUnlessAborted(clock, signal);
    }
    patience.committed(absent, (known) => !waiting.has(known.alarm.id));
    doubts.committed();
    overtakenEnds.committed();
    for (const siteId of covered) takenOver.add(siteId);
    const remarks = [
      ...seen.remarks,
      ...masses,
      ...doubtful.tell(sifted, ends, seen.unreadable),
      ...[interval.remark(pages)].filter((remark) => remark !== null),
    ];
    return outcomeOf(new Map([...ends.failures, ...asked.failures, ...seen.failures]), seen.reasons, remarks);
  }

  /** Sites that were followed before and list an alarm that was not active. */
  function sitesWithNews(listed: readonly Alarm[]): readonly number[] {
    const sites = holding.get<StoredAlarmSite>(siteSet);
    const fresh = listed.filter(({ id, site }) => {
      const known = held().get(id);
      return (known === undefined || !isOpen(known)) && (sites.get(String(site.id))?.activeSince ?? null) !== null;
    });
    return [...new Set(fresh.map(({ site }) => site.id))];
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

  function forgottenIds(put: ReadonlyMap<string, StoredAlarm>): readonly string[] {
    const sweep = holding.get<StoredSweep>(syncSet("sweep", source.name)).get("resolved");
    const sites = holding.get<StoredAlarmSite>(siteSet);
    return forgotten(held(), put, {
      nowMs: clock.now(),
      overlapMs: settings.resolved_overlap,
      // A site that is out of sight is swept on from where it left.
      sweptMsOf: (siteId) =>
        instant(sites.get(String(siteId))?.sweptUntil ?? null) ?? instant(sweep?.watermark ?? null),
    });
  }

  function newlyKnown(siteIds: readonly number[], at: string): readonly (readonly [string, StoredAlarmSite])[] {
    const sites = holding.get<StoredAlarmSite>(siteSet);
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

type Alarms = ReadonlyMap<string, StoredAlarm>;

/** Whether a resolved record ends the known episode by itself, whatever the list of active alarms shows. */
function isEndOf(known: StoredAlarm, word: Alarm): boolean {
  return !isEmittedEnd(known, word) && !isOverBefore(known, word);
}

function entryOf(held: Alarms, id: string): readonly (readonly [string, StoredAlarm])[] {
  const known = held.get(id);
  return known === undefined ? [] : [[id, known]];
}

function idsOf(alarms: readonly Alarm[]): readonly string[] {
  return alarms.map(({ id }) => id);
}

function isFollowed(known: StoredAlarm): boolean {
  return isOpen(known) && known.state !== "out-of-scope";
}
