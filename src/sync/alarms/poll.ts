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
import { isOpen } from "./diff-alarm.ts";
import { absentees, diffAlarms, inParts, type Scope } from "./diff-alarms.ts";
import { createDoubts } from "./doubts.ts";
import { contradictsItself, instant, lastTimeOf } from "./episode.ts";
import { type ActiveAlarms, bothReadings, createAlarmList } from "./list.ts";
import { searchAlarms } from "./search.ts";
import { createDropDoubt, dropIn } from "./sudden-drop.ts";

export interface AlarmPoll {
  run(signal: AbortSignal): Promise<JobOutcome>;
  /** The first poll after the service was away: everything is read twice, and told only when both agree. */
  reconcile(signal: AbortSignal): Promise<JobOutcome>;
}

/** How often it is asked whether the scope has grown, where no list would show it, in milliseconds. */
const SCOPE_CHECK_MS = 300_000;
/** How long an episode is remembered of which nobody can read when it was, or that vanished, in milliseconds. */
const REMEMBER_MS = 7 * 86_400_000;
/** Of so many alarms at most what is new is compared or committed at once: 5,000 would stop everything for half a second. */
const PART = 250;
/** How many ends that nobody acknowledged are remembered longer than the sweep needs: some 4 MB. */
const UNACKNOWLEDGED = 2_000;

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
  const dropDoubt = createDropDoubt(log);
  const isUnacknowledged = ({ state, untold, alarm }: HeldAlarm) =>
    state === "resolved" && untold !== true && !alarm.acknowledged;
  const patience = createPatience(settings.vanish_after_misses);
  /** By site, the priorities of which a count was shown. */
  const shown = new Map<number, Set<string>>();

  /** Asks after absent alarms, site by site; a site that refuses or fails simply brings no evidence. */
  async function search(worth: readonly HeldAlarm[], signal: AbortSignal) {
    const isLast = (known: HeldAlarm) => known.misses + 1 >= settings.vanish_after_misses;
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

  /** What of the list dropped at once: measured on what it should show, whatever else it shows. */
  function dropOf(seen: ActiveAlarms, found: ReadonlySet<string>, visible: (siteId: number) => boolean) {
    const shown = new Set(seen.listed.map((alarm) => alarm.id));
    const isThere = ({ alarm }: HeldAlarm) => shown.has(alarm.id) || found.has(alarm.id);
    return dropIn(held(), isThere, (siteId) => visible(siteId) && seen.coverage(siteId) === "complete");
  }

  async function readList(careful: boolean, signal: AbortSignal): Promise<ActiveAlarms> {
    const seen = await list.read(careful, signal);
    if (careful || dropOf(seen, new Set(), () => true) === null) return seen;
    return bothReadings(seen, await list.read(false, signal));
  }

  async function poll(careful: boolean, signal: AbortSignal): Promise<JobOutcome> {
    await lookForNewScope(signal);
    const seen = await readList(careful, signal);
    if (careful && seen.reasons.length > 0) return incomplete(seen.reasons.join(" "));

    const { listed, doubted, insisted } = doubts.sift(held(), seen.listed, seen.coverage);
    const absent = absentees(held(), { listed, coverage: seen.coverage }, isVisible);
    const worth = patience.worthAsking(absent);
    const asked = await search(worth, signal);
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
    const doubtful = absent.filter((known) => dropDoubt.isOpen(known.alarm.site.id));
    const unexplained =
      [...worth, ...doubtful].some((known) => !found.has(known.alarm.id)) ||
      hidden.some((known) => !shownIds.has(known.alarm.id)) ||
      held()
        .values()
        .some((known) => isFollowed(known) && refused.has(known.alarm.site.id));
    const seenScope: Scope | null = unexplained ? await scope.tryRefresh(signal) : null;

    const isSeen = (siteId: number) => seenScope?.after.has(siteId) ?? true;
    const drop = dropOf(seen, found, isSeen);
    const inDoubt = dropDoubt.judge(drop, (siteId) => seen.coverage(siteId) === "complete");

    const sites = holding.get<HeldAlarmSite>(siteSet);
    const at = isoUtc(clock.now());
    const compared = diffAlarms(
      held(),
      {
        listed,
        insisted,
        doubted: new Set([...doubted, ...unclear.map((alarm) => alarm.id)]),
        coverage: (siteId) => (inDoubt.siteIds.has(siteId) ? "moving" : seen.coverage(siteId)),
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
    const diff = await withOthersTurns(compared, PART, clock, signal);
    const covered = [
      ...new Set([...(scope.known() ?? []), ...seen.listed.map((alarm) => alarm.site.id)]),
    ].filter((siteId) => seen.coverage(siteId) === "complete");
    const known: DocumentChange[] = [
      { set: alarmSet, remove: forgotten(diff.put) },
      { set: siteSet, put: newlyKnown(covered, at) },
    ];
    for (const part of inParts(diff, PART)) {
      const documents: DocumentChange[] = [{ set: alarmSet, put: part.put }, ...(part.isLast ? known : [])];
      await parts.commit("alarms", { documents, events: part.events }, careful);
      if (!part.isLast) await othersTurn(clock, signal);
    }
    patience.committed(absent);
    doubts.committed();
    for (const siteId of covered) takenOver.add(siteId);
    showActive();
    const doubt = `${doubted.size} records of the list of active alarms contradict themselves or say nothing.`;
    const remarks = [
      ...seen.remarks,
      ...(inDoubt.remark === null ? [] : [inDoubt.remark]),
      ...(doubted.size > 0 ? [doubt] : []),
    ];
    return outcomeOf(new Map([...asked.failures, ...seen.failures]), seen.reasons, remarks);
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

  /**
   * Episodes that ended so long ago that no sweep will find them again. Those whose end nobody has acknowledged are
   * remembered for a week, the latest of them, because the acknowledgement may come the next morning.
   */
  function forgotten(put: ReadonlyMap<string, HeldAlarm>): readonly string[] {
    const sweep = holding.get<HeldSweep>(syncSet("sweep", source.name)).get("resolved");
    const watermark = instant(sweep?.watermark ?? null);
    const sites = holding.get<HeldAlarmSite>(siteSet);
    const ids: string[] = [];
    const unacknowledged: [id: string, since: string][] = [];
    for (const [id, known] of held()) {
      if (isOpen(known) || put.has(id)) continue;
      const end = latestEnd(known);
      // A site that is out of sight is swept on from where it left.
      const sweptMs = instant(sites.get(String(known.alarm.site.id))?.sweptUntil ?? null) ?? watermark;
      const swept = known.state === "resolved" && end !== null && sweptMs !== null;
      const beforeSweep = swept && end < sweptMs - 2 * settings.resolved_overlap;
      const age = clock.now() - Date.parse(known.since);
      const old = swept ? beforeSweep && age > 2 * settings.resolved_overlap : age > REMEMBER_MS;
      if (old && age <= REMEMBER_MS && isUnacknowledged(known)) unacknowledged.push([id, known.since]);
      else if (old) ids.push(id);
    }
    const oldest = unacknowledged.sort(([, one], [, other]) => (one < other ? 1 : -1)).slice(UNACKNOWLEDGED);
    return [...ids, ...oldest.map(([id]) => id)];
  }

  function newlyKnown(siteIds: readonly number[], at: string): readonly (readonly [string, HeldAlarmSite])[] {
    const sites = holding.get<HeldAlarmSite>(siteSet);
    return siteIds.flatMap((siteId) => {
      const known = sites.get(String(siteId));
      if (known !== undefined && known.activeSince !== null) return [];
      return [[String(siteId), { resolvedSince: null, ...known, activeSince: at }] as const];
    });
  }

  function showActive(): void {
    const counts = new Map<number, Map<string, number>>();
    for (const { state, alarm } of held().values()) {
      if (state !== "active" && state !== "missing") continue;
      const ofSite = counts.get(alarm.site.id) ?? new Map<string, number>();
      counts.set(alarm.site.id, ofSite);
      const { priority } = alarm.trigger;
      ofSite.set(priority, (ofSite.get(priority) ?? 0) + 1);
    }
    const labels = { source: source.name };
    // What was shown once is shown as none.
    for (const [site, priorities] of shown) {
      for (const priority of priorities)
        if (counts.get(site)?.get(priority) === undefined)
          metrics.alarmsActive.set({ ...labels, site: String(site), priority }, 0);
    }
    for (const [site, ofSite] of counts) {
      const priorities = shown.get(site) ?? new Set();
      shown.set(site, priorities);
      for (const [priority, count] of ofSite) {
        priorities.add(priority);
        metrics.alarmsActive.set({ ...labels, site: String(site), priority }, count);
      }
    }
  }

  return {
    run: (signal) => alone(() => poll(false, signal)),
    reconcile: (signal) => alone(() => poll(true, signal)),
  };
}

/**
 * When the last of an alarm's episodes was over by the service's clock, which may have been set back since. It is taken as
 * the sweep takes it, which tells anew what it still looks at and nobody remembers: also of an end without a time, or
 * without an offset, that is the last one for weeks.
 */
function latestEnd({ alarm, former = [] }: HeldAlarm): number | null {
  const last = lastTimeOf(alarm);
  return last === null ? null : Math.max(last, ...former.map(({ endMs }) => endMs ?? 0));
}

function isFollowed(known: HeldAlarm): boolean {
  return isOpen(known) && known.state !== "out-of-scope";
}

/**
 * An episode that stays unexplained is asked after ever more rarely: at its polls 1, 2, 4, 8 … of absence. A poll
 * whose answers could not be committed does not count: they have to be asked for again.
 */
function createPatience(always: number) {
  let polls = new Map<string, number>();
  const countOf = ({ episode }: HeldAlarm) => (polls.get(episode) ?? 0) + 1;
  return {
    worthAsking(absent: readonly HeldAlarm[]): readonly HeldAlarm[] {
      return absent.filter((known) => {
        const count = countOf(known);
        return count <= always || Number.isInteger(Math.log2(count));
      });
    },
    committed(absent: readonly HeldAlarm[]): void {
      polls = new Map(absent.map((known) => [known.episode, countOf(known)]));
    },
  };
}
