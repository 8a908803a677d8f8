import type { Alarm, Gateway, Host } from "../../../core/model/building.ts";
import { sourceUri } from "../../../core/model/event.ts";
import type { OneAtATime } from "../../../core/runtime/waiting.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import { type DocumentChange, documentSet } from "../../store/store.ts";
import { behindGateway } from "../inventory/behind-gateway.ts";
import { incomplete, type JobOutcome, OK } from "../job.ts";
import type { PollParts } from "../poll-parts.ts";
import { type Listed, type StoredAlarm, type StoredAlarmSite, type StoredSweep, syncSet } from "../snapshot.ts";
import { isOpen } from "./diff-alarm.ts";
import { diffResolved } from "./diff-resolved.ts";
import { createMassGuard } from "./mass-change.ts";
import { type ResolvedReading, readResolved } from "./resolved-reading.ts";
import { instant, lastTimeOf } from "./times.ts";
import { unreadableRecords } from "./unverified-records.ts";

/** How long the learned order of the list is trusted before all pages are read again, in milliseconds. */
const ORDER_TRUSTED_MS = 86_400_000;

/**
 * Looks through the resolved alarms for what happened between two polls.
 *
 * The interface states no order of the list and no way to ask for changes since a time. So the first sweep reads every
 * page; where the list turns out to begin with the newest, later sweeps stop at the first page that is all older
 * than the watermark less the overlap, and once a day everything is read again. Where it does not, each sweep reads
 * every page: one request for 500 resolved alarms, at most `resolved_pages_max`. Beyond that the sweep says so.
 */
export function createResolvedSweep(
  parts: PollParts,
  alone: OneAtATime,
): { run(signal: AbortSignal): Promise<JobOutcome> } {
  const { source, config, clock, log, scope, syncState: holding } = parts;
  const { alarms: settings } = config;
  const alarmSet = documentSet("alarm", source.name);
  const siteSet = syncSet("alarm-site", source.name);
  const sweepSet = syncSet("sweep", source.name);
  const held = () => holding.get<StoredAlarm>(alarmSet);
  const guard = createMassGuard(log);
  let first = true;

  async function sweep(signal: AbortSignal): Promise<JobOutcome> {
    const known = holding.get<StoredSweep>(sweepSet).get("resolved");
    const visible = scope.known();
    const fromMs = known === undefined ? null : knownUntilMs(known, visible) - settings.resolved_overlap;
    const trusted = known !== undefined && clock.now() - Date.parse(known.wholeAt) < ORDER_TRUSTED_MS;
    const readings: ResolvedReading[] = [];
    for (const siteId of settings.sites ?? [null]) {
      const pages = source.alarms({ status: "resolved", ...(siteId === null ? {} : { siteId }) }, signal);
      readings.push(
        await readResolved(pages, {
          fromMs,
          stopBy: trusted ? known.newestFirstBy : null,
          maxPages: settings.resolved_pages_max,
          isAwaited,
        }),
      );
    }
    return alone(() => compare(known, fromMs, visible, readings));
  }

  function isAwaited(alarmId: string): boolean {
    const known = held().get(alarmId);
    if (known === undefined) return false;
    return isOpen(known) || (known.state === "resolved" && !known.untold && !known.alarm.acknowledged);
  }

  async function compare(
    known: StoredSweep | undefined,
    fromMs: number | null,
    visible: ReadonlySet<number> | null,
    readings: readonly ResolvedReading[],
  ): Promise<JobOutcome> {
    const at = isoUtc(clock.now());
    const records = readings
      .flatMap((reading) => reading.records)
      .filter((record) => known === undefined || isAwaited(record.id) || isLookedAt(record, known, visible));
    const next = nextSweep(known, readings, at);
    const found = diffResolved(held(), records, {
      source: sourceUri(source.name),
      at,
      late: true,
      behindGateway: behindGateway(
        holding.get<Listed<Gateway>>(documentSet("gateway", source.name)),
        holding.get<Listed<Host>>(documentSet("host", source.name)),
        parts.offlineGatewayOf,
      ),
      fromMs: fromMs ?? firstFromMs(next) - settings.resolved_overlap,
      isHistory: (alarm) => isHistory(alarm, known !== undefined),
      silent: first && settings.startup === "silent",
    });
    const { diff, remarks } = guard.judge(held(), found, { coverage: () => "complete" });
    // The next sweep has to read again the records that wait for a confirmation.
    const steady = remarks.length === 0 && readings.every((reading) => reading.steady);
    const documents: DocumentChange[] = [{ set: alarmSet, put: diff.put }];
    if (steady) {
      documents.push({ set: siteSet, put: [...newlyKnown(records, at), ...newlyHidden(known, visible)] });
      if (!sameSweep(known, next)) documents.push({ set: sweepSet, put: [["resolved", next]] });
    }
    await parts.commit("resolved_sweep", { documents, events: diff.events });
    first = first && !steady;
    if (readings.some((reading) => reading.tooLong)) {
      return incomplete(
        `More than ${settings.resolved_pages_max} pages of resolved alarms: short alarms may be missed. Raise resolved_pages_max, or follow fewer sites.`,
      );
    }
    const broken = readings.find((reading) => reading.brokenBy !== null);
    if (broken !== undefined) return incomplete(`${broken.brokenBy} What it showed before is told.`);
    // Records of a changing list are emitted and the watermark stays; only the very first reading is repeated.
    remarks.push(
      ...unreadableRecords(
        readings.flatMap(({ unreadable }) => unreadable),
        "resolved",
      ),
    );
    if (remarks.length > 0) return { kind: "ok", remark: remarks.join(" ") };
    return steady || known !== undefined ? OK : incomplete("The list of resolved alarms changed while it was read.");
  }

  /** A site that comes back into the scope is caught up with from where it left: so far back the reading goes. */
  function knownUntilMs(known: StoredSweep, visible: ReadonlySet<number> | null): number {
    const siteIds = [...holding.get<StoredAlarmSite>(siteSet).keys()].map(Number);
    const untilMs = siteIds.map((siteId) => knownUntilMsAt(siteId, known, visible));
    return Math.min(instant(known.watermark) ?? 0, ...untilMs);
  }

  function knownUntilMsAt(siteId: number, { watermark }: StoredSweep, visible: ReadonlySet<number> | null): number {
    const sweptUntil = holding.get<StoredAlarmSite>(siteSet).get(String(siteId))?.sweptUntil;
    const isBack = sweptUntil !== undefined && visible?.has(siteId) === true;
    return instant(isBack ? sweptUntil : watermark) ?? 0;
  }

  /**
   * True when a record lies within the time that is read for its site. Ten days of one site are history for the others, whose
   * emitted episodes are stored for a shorter time and would be emitted again.
   */
  function isLookedAt(record: Alarm, known: StoredSweep, visible: ReadonlySet<number> | null): boolean {
    const fromMs = knownUntilMsAt(record.site.id, known, visible) - settings.resolved_overlap;
    return (lastTimeOf(record) ?? fromMs) >= fromMs;
  }

  /** Sites that this sweep did not see, and those that it caught up with. */
  function newlyHidden(
    known: StoredSweep | undefined,
    visible: ReadonlySet<number> | null,
  ): readonly (readonly [string, StoredAlarmSite])[] {
    if (known === undefined || visible === null) return [];
    return [...holding.get<StoredAlarmSite>(siteSet)].flatMap(([id, site]) => {
      if (site.resolvedSince === null || visible.has(Number(id)) === (site.sweptUntil === undefined)) return [];
      const { sweptUntil, ...seen } = site;
      return [[id, sweptUntil === undefined ? { ...seen, sweptUntil: known.watermark } : seen] as const];
    });
  }

  /** A first sweep may come long after the active alarms were first listed; what ended since then is news. */
  function firstFromMs({ watermark }: StoredSweep): number {
    const sites = [...holding.get<StoredAlarmSite>(siteSet).values()];
    const listed = sites.flatMap(({ activeSince }) => (activeSince === null ? [] : [Date.parse(activeSince)]));
    return Math.min(Date.parse(watermark), ...listed);
  }

  /** At the first sweep of a site, what began after its active alarms were first listed is news all the same. */
  function isHistory(alarm: Alarm, sweptBefore: boolean): boolean {
    const site = holding.get<StoredAlarmSite>(siteSet).get(String(alarm.site.id));
    if (site === undefined) return true;
    if (sweptBefore && site.resolvedSince !== null) return false;
    const start = instant(alarm.triggeredAt);
    if (site.activeSince === null || start === null) return true;
    // The service states whole seconds: what began at 10:00:00.7 is listed with 10:00:00.
    return start < Math.floor(Date.parse(site.activeSince) / 1_000) * 1_000;
  }

  /**
   * No end takes the watermark beyond our own clock. One of 18:00 that is shown at 08:00 would take it to 09:00 even with a
   * limit of one overlap, and the next sweep would begin at 08:00: what ended at 07:59 and is shown at 08:01 was lost.
   */
  function nextSweep(known: StoredSweep | undefined, readings: readonly ResolvedReading[], at: string): StoredSweep {
    const ends = readings.flatMap((reading) => (reading.latestMs === null ? [] : [reading.latestMs]));
    const now = clock.now();
    const before = instant(known?.watermark ?? null) ?? 0;
    const latest = Math.max(Math.min(Math.max(...ends), now), Math.min(before, now + settings.resolved_overlap));
    const whole = readings.every((reading) => reading.whole);
    const orders = new Set(readings.filter((one) => one.pages > 1).map((one) => one.newestFirstBy));
    const [order = null] = orders;
    return {
      watermark: latest > 0 ? isoUtc(latest) : at,
      newestFirstBy: whole ? (orders.size === 1 ? order : null) : (known?.newestFirstBy ?? null),
      wholeAt: whole || known === undefined ? at : known.wholeAt,
    };
  }

  function newlyKnown(records: readonly Alarm[], at: string): readonly (readonly [string, StoredAlarmSite])[] {
    const sites = holding.get<StoredAlarmSite>(siteSet);
    const ids = new Set([...(scope.known() ?? []), ...records.map((alarm) => alarm.site.id)]);
    return [...ids].flatMap((siteId) => {
      const known = sites.get(String(siteId));
      if (known !== undefined && known.resolvedSince !== null) return [];
      return [[String(siteId), { activeSince: known?.activeSince ?? null, resolvedSince: at }] as const];
    });
  }

  return { run: sweep };
}

function sameSweep(known: StoredSweep | undefined, next: StoredSweep): boolean {
  return (
    known !== undefined &&
    known.watermark === next.watermark &&
    known.newestFirstBy === next.newestFirstBy &&
    // The time of a whole reading matters only where sweeps stop early.
    (next.newestFirstBy === null || known.wholeAt === next.wholeAt)
  );
}
