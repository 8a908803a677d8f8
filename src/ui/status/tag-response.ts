import { type Gateway, RESOLUTIONS, type System, type Tag } from "../../core/model/building.ts";
import { type Event, eventSubject, makeEvent, sourceUri } from "../../core/model/event.ts";
import { documentSet, type Store } from "../../engine/store/store.ts";
import { findOfflineGatewayBySite } from "../../engine/sync/inventory/gateways.ts";
import {
  isSeriesComplete,
  lastGoodOf,
  type StoredLedger,
  type StoredObject,
  type StoredTagQuarantine,
  type StoredTagSystems,
  type StoredValue,
  syncSet,
} from "../../engine/sync/snapshot.ts";
import { findTag } from "../../engine/views/alarm-time-series.ts";
import { activeAlarms } from "./alarm-responses.ts";
import { WATCHED_DATA_AGE_MS } from "./cached-documents.ts";
import type { PageContext } from "./response-context.ts";
import type { TagRow } from "./tag-index.ts";

export type TagResponse = NonNullable<Awaited<ReturnType<typeof tagResponse>>>;

const MAX_COMMANDS = 10;

/** GET /api/tag?source&id */
export async function tagResponse(context: PageContext, source: string, id: string) {
  const { live, store } = context;
  const row = await context.tags.row(source, id);
  if (row === null) return null;
  const [value, commands, systems, log, next, alarms, gatewayOffline] = await Promise.all([
    store.document<StoredValue>(documentSet("value", source), id),
    context.listCommands({ source, tag: id, limit: MAX_COMMANDS }),
    tagSystems(store, source, id),
    logStates(store, source, id),
    nextReading(context, source, id),
    tagAlarms(context, row),
    offlineGateway(context, row),
  ]);
  return {
    ...row,
    systems,
    gatewayOffline,
    lastGood: value === undefined ? null : lastGoodOf(value),
    ...next,
    log,
    places: live.addressesOf(sampleEvent(row)),
    alarms,
    commands,
    writable: live.writable(source, id),
  };
}

async function tagSystems(store: Store, source: string, id: string) {
  const stored = await store.document<StoredTagSystems>(syncSet("tag-system", source), id);
  const systems = await Promise.all(
    (stored?.systemIds ?? []).map((id) => store.document<StoredObject<System>>(documentSet("system", source), id)),
  );
  return systems.flatMap((system) => (system ? [{ id: system.value.id, displayName: system.value.displayName }] : []));
}

async function offlineGateway({ cache }: PageContext, { source, siteId }: TagRow): Promise<string | null> {
  const gateways = await cache.documents<StoredObject<Gateway>>(documentSet("gateway", source), WATCHED_DATA_AGE_MS);
  const id = siteId === null ? undefined : findOfflineGatewayBySite(gateways).get(siteId);
  return id === undefined ? null : (gateways.get(id)?.value.displayName ?? id);
}

/** Read interval, time of the next reading and the reason; or why the tag is not read. */
async function nextReading({ store, live }: PageContext, source: string, id: string) {
  const reading = live.tag(source, id);
  if (reading !== null) {
    const { dueAt, everySeconds, reasons } = reading;
    const earlyHint = dueAt === null ? [] : ["Plenum reads the tag earlier if a request has room for it."];
    return { everySeconds, next: { at: dueAt, why: [...reasons, ...earlyHint].join(" ") } };
  }
  const tag = await store.document<StoredObject<Tag>>(documentSet("tag", source), id);
  const quarantine = await store.document<StoredTagQuarantine>(syncSet("quarantine", source), id);
  const why =
    tag?.missingSince != null
      ? `Plenum does not read the tag: it has been missing from the lists of the service since ${tag.missingSince}.`
      : quarantine !== undefined
        ? `In quarantine until ${quarantine.until}: ${quarantine.reason}`
        : "No class of live reads selects it, or the worker has only just started.";
  return { everySeconds: null as number | null, next: { at: null as string | null, why } };
}

/** Active alarms whose name fits this tag and no other tag of the site. */
async function tagAlarms({ cache, tags }: PageContext, { siteId, source, tag }: TagRow) {
  if (siteId === null) return [];
  const nearby = await tags.ofSite(source, siteId);
  return activeAlarms(cache, source, (alarm) => alarm.site.id === siteId && findTag(alarm, nearby)?.tag.id === tag.id);
}

function sampleEvent({ source, siteId, tag, value, quality, time }: TagRow): Event {
  const at = time ?? "1970-01-01T00:00:00.000Z";
  return makeEvent({
    type: "tag-value",
    source: sourceUri(source),
    subject: eventSubject("tag", siteId, tag.id),
    time: at,
    siteId,
    data: { tag, value, quality: quality ?? "bad", time: at, latencyMs: 0, lastGood: null, behindGateway: null },
    facts: [],
  });
}

/** State of the followed logs at the service; each resolution is followed by its totals. */
async function logStates(store: Store, source: string, id: string) {
  const names = RESOLUTIONS.flatMap((resolution) => [resolution, `${resolution} total`]);
  const ledgers = await Promise.all(
    names.map((name) => store.document<StoredLedger>(documentSet("history", source), `${id} ${name}`)),
  );
  return ledgers.flatMap((ledger, n) =>
    ledger === undefined ? [] : [{ resolution: names[n] ?? "", ...logState(ledger) }],
  );
}

function logState(ledger: StoredLedger) {
  const { refusal, spans = [], state, watermark } = ledger;
  const isFetched = spans.some(({ why }) => why === "points" || why === "null");
  const stateText =
    state === "no-log"
      ? `no log: ${refusal?.said ?? "the service says so"}`
      : refusal !== null
        ? `refused: ${refusal.said}`
        : state === "unproven"
          ? "not followed yet: it is not known whether there is a log"
          : "followed";
  return { state: stateText, knownUntil: isFetched ? watermark : null, holes: holesOf(ledger) };
}

/** Number of configured ranges up to the watermark that were not fetched. */
export function holesOf(ledger: StoredLedger): number {
  if (isSeriesComplete(ledger)) return 0;
  const { since, spans = [], watermark, wished } = ledger;
  let coveredUntil = wished < since ? wished : since;
  let holes = 0;
  for (const { from, to, why } of spans) {
    if (why === "refused") continue;
    if (from > coveredUntil) holes += 1;
    if (to > coveredUntil) coveredUntil = to;
  }
  return holes + (coveredUntil < watermark ? 1 : 0);
}
