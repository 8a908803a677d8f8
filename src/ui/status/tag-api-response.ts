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
} from "../../engine/sync/stored-documents.ts";
import { findTag } from "../../engine/views/tag-values-around-alarm.ts";
import { activeAlarms } from "./alarm-api-responses.ts";
import { WATCHED_DATA_AGE_MS } from "./cache-of-stored-documents.ts";
import type { ResponseContext } from "./response-context.ts";
import type { TagRow } from "./tag-index.ts";

export type TagResponse = NonNullable<Awaited<ReturnType<typeof tagResponse>>>;

const MAX_LISTED_COMMANDS = 10;

/** GET /api/tag?source&id: one tag with its value, history, alarms and commands. */
export async function tagResponse(context: ResponseContext, source: string, id: string) {
  const { live, store } = context;
  const row = await context.tags.findRow(source, id);
  if (row === null) return null;
  const [value, commands, systems, log, next, alarms, gatewayOffline] = await Promise.all([
    store.document<StoredValue>(documentSet("value", source), id),
    context.listCommands({ source, tag: id, limit: MAX_LISTED_COMMANDS }),
    readTagSystems(store, source, id),
    historyLogStates(store, source, id),
    nextTagReading(context, source, id),
    findTagAlarms(context, row),
    offlineGatewayName(context, row),
  ]);
  return {
    ...row,
    systems,
    gatewayOffline,
    lastGood: value === undefined ? null : lastGoodOf(value),
    ...next,
    log,
    places: await live.findSinkAddresses(sampleTagEvent(row)),
    alarms,
    commands,
    writable: await live.findWritableTag(source, id),
  };
}

async function readTagSystems(store: Store, source: string, id: string) {
  const storedSystems = await store.document<StoredTagSystems>(syncSet("tag-system", source), id);
  const systems = await Promise.all(
    (storedSystems?.systemIds ?? []).map((id) =>
      store.document<StoredObject<System>>(documentSet("system", source), id),
    ),
  );
  return systems.flatMap((system) => (system ? [{ id: system.value.id, displayName: system.value.displayName }] : []));
}

async function offlineGatewayName({ cache }: ResponseContext, { source, siteId }: TagRow): Promise<string | null> {
  const gateways = await cache.documents<StoredObject<Gateway>>(documentSet("gateway", source), WATCHED_DATA_AGE_MS);
  const id = siteId === null ? undefined : findOfflineGatewayBySite(gateways).get(siteId);
  return id === undefined ? null : (gateways.get(id)?.value.displayName ?? id);
}

/** Returns time and reason of the next reading, or the reason why the tag is not read. */
async function nextTagReading({ store, live }: ResponseContext, source: string, id: string) {
  const tagState = live.findLiveTagState(source, id);
  if (tagState !== null) {
    const { dueAt, everySeconds, reasons } = tagState;
    const earlyReadHint = dueAt === null ? [] : ["Plenum reads the tag earlier if a request has room for it."];
    return { everySeconds, next: { at: dueAt, why: [...reasons, ...earlyReadHint].join(" ") } };
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

/** Finds active alarms that name this tag and no other tag of the site. */
async function findTagAlarms({ cache, tags }: ResponseContext, { siteId, source, tag }: TagRow) {
  if (siteId === null) return [];
  const siteTags = await tags.tagsOfSite(source, siteId);
  return activeAlarms(
    cache,
    source,
    (alarm) => alarm.site.id === siteId && findTag(alarm, siteTags)?.tag.id === tag.id,
  );
}

function sampleTagEvent({ source, siteId, tag, value, quality, time }: TagRow): Event {
  const valueTime = time ?? "1970-01-01T00:00:00.000Z";
  return makeEvent({
    type: "tag-value",
    source: sourceUri(source),
    subject: eventSubject("tag", siteId, tag.id),
    time: valueTime,
    siteId,
    data: { tag, value, quality: quality ?? "bad", time: valueTime, latencyMs: 0, lastGood: null, behindGateway: null },
    facts: [],
  });
}

/** Lists the state of the tag's history at each resolution, such as `followed` or `no log`. */
async function historyLogStates(store: Store, source: string, id: string) {
  const seriesNames = RESOLUTIONS.flatMap((resolution) => [resolution, `${resolution} total`]);
  const historyLedgers = await Promise.all(
    seriesNames.map((series) => store.document<StoredLedger>(documentSet("history", source), `${id} ${series}`)),
  );
  return historyLedgers.flatMap((ledger, n) =>
    ledger === undefined ? [] : [{ resolution: seriesNames[n] ?? "", ...historyLogState(ledger) }],
  );
}

function historyLogState(ledger: StoredLedger) {
  const { refusal, spans = [], state, watermark } = ledger;
  const hasFetchedPoints = spans.some(({ why }) => why === "points" || why === "null");
  const logStateText =
    state === "no-log"
      ? `no log: ${refusal?.said ?? "the service says so"}`
      : refusal !== null
        ? `refused: ${refusal.said}`
        : state === "unproven"
          ? "not followed yet: it is not known whether there is a log"
          : "followed";
  return { state: logStateText, knownUntil: hasFetchedPoints ? watermark : null, holes: countUnfetchedRanges(ledger) };
}

export function countUnfetchedRanges(ledger: StoredLedger): number {
  if (isSeriesComplete(ledger)) return 0;
  const { since, spans = [], watermark, wished } = ledger;
  let coveredUntil = wished < since ? wished : since;
  let unfetchedRangeCount = 0;
  for (const { from, to, why } of spans) {
    if (why === "refused") continue;
    if (from > coveredUntil) unfetchedRangeCount += 1;
    if (to > coveredUntil) coveredUntil = to;
  }
  return unfetchedRangeCount + (coveredUntil < watermark ? 1 : 0);
}
