import type { Alarm, Site } from "../../core/model/building.ts";
import { printable } from "../../core/values/printable.ts";
import { covers, type Silence, whom } from "../../engine/silence/silence.ts";
import { documentSet } from "../../engine/store/store.ts";
import type { Listed, StoredAlarm } from "../../engine/sync/snapshot.ts";
import { type CachedDocuments, STEADY_MS, WATCHED_MS } from "./cached-documents.ts";

/** Until when people are not told of an alarm, why, and by whom. */
export type Silenced = Pick<Silence, "to" | "reason" | "madeBy">;

/** A silence, for people. */
export interface SilenceRow extends Silenced {
  readonly id: string;
  readonly from: string;
  /** Which alarms it is about, in words, with their names where these are known. */
  readonly alarms: string;
  /** False: it is to come. */
  readonly isActive: boolean;
}

/** Whether a silence has begun and is not over; `at` is UTC. */
export function isActive({ from, to }: Silence, at: string): boolean {
  return from <= at && to > at;
}

/** The longest silence that covers the alarm; null without one. */
export function silencedBy(silences: readonly Silence[], source: string, alarm: Alarm): Silenced | null {
  const [last] = silences
    .filter((silence) => covers(silence, source, alarm))
    .toSorted((a, b) => b.to.localeCompare(a.to));
  return last === undefined ? null : { to: last.to, reason: last.reason, madeBy: last.madeBy };
}

/** GET /api/silences?source&site: those that may silence an alarm there. */
export interface AskedSilences {
  readonly source?: string | undefined;
  readonly site?: number | undefined;
}

/** Active silences first, then future ones; `at` is UTC. */
export async function silenceRows(
  remembered: CachedDocuments,
  sources: readonly string[],
  silences: readonly Silence[],
  at: string,
  asked: AskedSilences,
): Promise<readonly SilenceRow[]> {
  const rows: SilenceRow[] = [];
  for (const silence of silences) {
    // The keeper ends it within seconds.
    if (silence.to <= at || !(await concerns(remembered, sources, silence, asked))) continue;
    const { id, from, to, reason, madeBy } = silence;
    const names = await namesIn(remembered, sources, silence);
    rows.push({
      id,
      from,
      to,
      reason,
      madeBy,
      alarms: whom(silence, names),
      isActive: isActive(silence, at),
    });
  }
  return rows;
}

/** One alarm is of the site that it was raised at; what names no site is of each. */
async function concerns(
  remembered: CachedDocuments,
  sources: readonly string[],
  silence: Silence,
  { source, site }: AskedSilences,
): Promise<boolean> {
  if (source !== undefined && silence.source !== null && silence.source !== source) return false;
  if (site === undefined) return true;
  if (silence.alarm === null) return silence.site === null || silence.site === site;
  for (const each of source === undefined ? sources : [source]) {
    const alarms = await remembered.documents<StoredAlarm>(documentSet("alarm", each), WATCHED_MS);
    if (alarms.get(silence.alarm)?.alarm.site.id === site) return true;
  }
  return false;
}

/** Names of the alarm and the site, where exactly one source can be meant. */
async function namesIn(remembered: CachedDocuments, sources: readonly string[], silence: Silence) {
  const source = silence.source ?? (sources.length === 1 ? sources[0] : undefined);
  if (source === undefined || !sources.includes(source)) return {};
  const [alarms, sites] = await Promise.all([
    remembered.documents<StoredAlarm>(documentSet("alarm", source), WATCHED_MS),
    remembered.documents<Listed<Site>>(documentSet("site", source), STEADY_MS),
  ]);
  const alarm = alarms.get(silence.alarm ?? "")?.alarm;
  const site = sites.get(String(silence.site))?.value;
  return {
    alarm: alarm && printable(`${alarm.trigger.displayName}, ${alarm.site.displayName}`),
    site: site && printable(site.displayName),
  };
}
