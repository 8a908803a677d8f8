import { Hono } from "hono";
import { z } from "zod";
import { ConfigError } from "../../core/errors/errors.ts";
import type { Alarm, Site } from "../../core/model/building.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { createSerialRunner } from "../../core/runtime/waiting.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { printableLine } from "../../core/values/printable-text.ts";
import {
  addSilence,
  buildSilence,
  describeSilencedAlarms,
  isAlarmSilenced,
  MAX_SILENCE_REASON_LENGTH,
  type Silence,
} from "../../engine/silence/alarm-silences.ts";
import { documentSet, type Store } from "../../engine/store/store.ts";
import type { StoredAlarm, StoredObject } from "../../engine/sync/stored-documents.ts";
import { acceptJsonFromOwnPage, sameOriginOnly, visitorName } from "./access-control.ts";
import { type CachedDocuments, SLOW_DATA_AGE_MS, WATCHED_DATA_AGE_MS } from "./cache-of-stored-documents.ts";
import type { ScopeQuery } from "./query-parameters.ts";
import type { StatusConfig } from "./status-config.ts";

export type AppliedSilence = Pick<Silence, "to" | "reason" | "madeBy">;

export interface SilenceRow extends AppliedSilence {
  readonly id: string;
  readonly from: string;
  readonly alarms: string;
  readonly isActive: boolean;
}

export const isSilenceActive = ({ from, to }: Silence, nowIso: string): boolean => from <= nowIso && to > nowIso;

/** Returns the silence of the alarm that ends last; null if the alarm is not silenced. */
export function longestSilenceFor(silences: readonly Silence[], source: string, alarm: Alarm): AppliedSilence | null {
  const coveringSilences = silences.filter((silence) => isAlarmSilenced(silence, source, alarm));
  const [longest] = coveringSilences.sort((a, b) => b.to.localeCompare(a.to));
  return longest === undefined ? null : { to: longest.to, reason: longest.reason, madeBy: longest.madeBy };
}

/** Lists active silences, then future silences that may concern the requested site. */
export async function silenceRows(
  cache: CachedDocuments,
  sources: readonly string[],
  silences: readonly Silence[],
  nowIso: string,
  scope: ScopeQuery,
): Promise<readonly SilenceRow[]> {
  const rows: SilenceRow[] = [];
  for (const silence of silences) {
    // Skip a silence that has ended; the worker removes it within seconds.
    if (silence.to <= nowIso || !(await maySilenceConcernSite(cache, sources, silence, scope))) continue;
    const { id, from, to, reason, madeBy } = silence;
    const alarms = describeSilencedAlarms(silence, await silenceTargetNames(cache, sources, silence));
    rows.push({ id, from, to, reason, madeBy, alarms, isActive: isSilenceActive(silence, nowIso) });
  }
  return rows;
}

async function maySilenceConcernSite(
  cache: CachedDocuments,
  sources: readonly string[],
  silence: Silence,
  { source, site }: ScopeQuery,
): Promise<boolean> {
  if (source !== undefined && silence.source !== null && silence.source !== source) return false;
  if (site === undefined) return true;
  if (silence.alarm === null) return silence.site === null || silence.site === site;
  for (const sourceName of source === undefined ? sources : [source]) {
    const alarms = await cache.documents<StoredAlarm>(documentSet("alarm", sourceName), WATCHED_DATA_AGE_MS);
    if (alarms.get(silence.alarm)?.alarm.site.id === site) return true;
  }
  return false;
}

async function silenceTargetNames(cache: CachedDocuments, sources: readonly string[], silence: Silence) {
  const source = silence.source ?? (sources.length === 1 ? sources[0] : undefined);
  if (source === undefined || !sources.includes(source)) return {};
  const [alarms, sites] = await Promise.all([
    cache.documents<StoredAlarm>(documentSet("alarm", source), WATCHED_DATA_AGE_MS),
    cache.documents<StoredObject<Site>>(documentSet("site", source), SLOW_DATA_AGE_MS),
  ]);
  const alarm = alarms.get(silence.alarm ?? "")?.alarm;
  const site = sites.get(String(silence.site))?.value;
  return {
    alarm: alarm && printableLine(`${alarm.trigger.displayName}, ${alarm.site.displayName}`),
    site: site && printableLine(site.displayName),
  };
}

export type SilenceStore = Pick<Store, "commit" | "document" | "documents">;

export interface SilenceRouteOptions {
  readonly config: Pick<StatusConfig, "trusted_proxy">;
  readonly clock: Pick<Clock, "now">;
  /** Returns the store of a source; null if another member of the fleet holds the source. */
  readonly findSilenceStore: (source: string) => SilenceStore | null;
  readonly endSilence: (id: string, endedAt: string, endedBy: string | null) => Promise<boolean>;
}

const MAX_REQUEST_BYTES = 8 * 1024;
const MINUTE_MS = 60_000;
const NewSilenceRequest = z
  .strictObject(
    {
      source: z.string({ error: "Say the source of the alarm or the site." }).max(200, "There is no such source."),
      site: z.int({ error: "A site's id is a whole number." }).optional(),
      alarm: z.string({ error: "An alarm's id is a text." }).max(200, "There is no such alarm.").optional(),
      minutes: z.literal([60, 240, 1_440], { error: "Choose 60, 240 or 1440 minutes." }),
      reason: z
        .string({ error: "Say why." })
        .trim()
        .min(1, "Say why.")
        .max(MAX_SILENCE_REASON_LENGTH, `Say why in ${MAX_SILENCE_REASON_LENGTH} characters at most.`),
    },
    {
      error: ({ code }) =>
        code === "unrecognized_keys" ? "The request has an unknown field." : "Send one JSON object.",
    },
  )
  .refine(({ alarm, site }) => (alarm === undefined) !== (site === undefined), {
    error: "Say either an alarm or a site.",
  });

/** POST /api/silences and POST /api/silences/:id/end. `guardPage` admits only operators. */
export function silenceRoutes({ config, clock, endSilence, findSilenceStore }: SilenceRouteOptions): Hono {
  const app = new Hono();
  // Add one silence at a time, so that concurrent requests cannot exceed the maximum number of silences.
  const runOneAtATime = createSerialRunner();

  app.post("/", acceptJsonFromOwnPage(MAX_REQUEST_BYTES, "That is too long for a silence."), async (context) => {
    const request = NewSilenceRequest.safeParse(await context.req.json().catch(() => null));
    if (!request.success) return context.json({ message: request.error.issues[0]?.message ?? "" }, 400);
    const { alarm = null, minutes, reason, site = null, source } = request.data;
    const store = findSilenceStore(source);
    if (store === null) return context.json({ message: "There is no such source." }, 404);
    const missingTargetMessage = await findMissingTarget(store, source, alarm, site);
    if (missingTargetMessage !== null) return context.json({ message: missingTargetMessage }, 404);
    const fromMs = clock.now();
    const toMs = fromMs + minutes * MINUTE_MS;
    const silenceTarget = { source, site, alarm, priorities: null, name: null };
    const madeBy = visitorName(context, config);
    const silence = buildSilence({ ...silenceTarget, reason, fromMs, toMs, madeBy }, fromMs);
    try {
      await runOneAtATime(() => addSilence(store, silence));
    } catch (error) {
      if (error instanceof ConfigError) return context.json({ message: error.message }, 409);
      throw error;
    }
    return context.json({ id: silence.id, to: silence.to }, 201);
  });

  app.post("/:id/end", sameOriginOnly, async (context) => {
    const visitor = visitorName(context, config);
    const id = context.req.param("id");
    return (await runOneAtATime(() => endSilence(id, isoUtc(clock.now()), visitor)))
      ? context.json({ ended: id })
      : context.json({ message: "There is no such silence (any more)." }, 404);
  });
  return app;
}

async function findMissingTarget(
  store: Pick<Store, "document">,
  source: string,
  alarmId: string | null,
  siteId: number | null,
): Promise<string | null> {
  if (alarmId !== null) {
    const storedAlarm = await store.document<StoredAlarm>(documentSet("alarm", source), alarmId);
    const isAlarmOver =
      storedAlarm === undefined || storedAlarm.state === "resolved" || storedAlarm.state === "vanished";
    return isAlarmOver ? "There is no such active alarm (any more)." : null;
  }
  const storedSite = await store.document<StoredObject<Site>>(documentSet("site", source), String(siteId));
  return storedSite === undefined ? "There is no such site." : null;
}
