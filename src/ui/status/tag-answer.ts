import type { Gateway, System, Tag } from "../../core/model/building.ts";
import { type Event, makeEvent, sourceUri, subjectOf } from "../../core/model/event.ts";
import { documentSet, type Store } from "../../engine/store/store.ts";
import { offlineGateways } from "../../engine/sync/inventory/gateways.ts";
import {
  type Listed,
  lastGoodOf,
  type StoredQuarantine,
  type StoredTagSystems,
  type StoredValue,
  syncSet,
} from "../../engine/sync/snapshot.ts";
import type { LiveTag } from "../../engine/sync/work.ts";
import { tagOf } from "../../engine/views/time-series.ts";
import { activeAlarms } from "./alarm-briefs.ts";
import { type CachedDocuments, WATCHED_MS } from "./cached-documents.ts";
import type { CommandRows } from "./command-rows.ts";
import type { TagResponse, TagRow } from "./responses.ts";
import type { TagIndex } from "./tag-index.ts";
import { tagLog } from "./tag-log.ts";

/** Topic or query at a sink, ready to be copied. */
export type Place = TagResponse["places"][number];

export interface TagParts {
  readonly store: Pick<Store, "document">;
  readonly remembered: CachedDocuments;
  readonly tags: Pick<TagIndex, "row" | "ofSite">;
  readonly commands: CommandRows;
  /** State in the live reads; null when it is not read. */
  readonly live: (source: string, id: string) => LiveTag | null;
  /** Topics or queries of the sinks whose filter passes the event. */
  readonly places: (event: Event) => readonly Place[];
  readonly writable: (source: string, id: string) => TagResponse["writable"];
}

const COMMANDS_SHOWN = 10;

/** Null for an unknown tag. */
export async function tagAnswer(parts: TagParts, source: string, id: string): Promise<TagResponse | null> {
  const { store, tags } = parts;
  const row = await tags.row(source, id);
  if (row === null) return null;
  const [value, commands, systems, log, next, alarms, gatewayOffline] = await Promise.all([
    store.document<StoredValue>(documentSet("value", source), id),
    parts.commands.list({ source, tag: id, limit: COMMANDS_SHOWN }),
    systemsOf(store, source, id),
    tagLog(store, source, id),
    nextOf(parts, source, id),
    alarmsOf(parts, row),
    gatewayOf(parts, row),
  ]);
  return {
    ...row,
    systems,
    gatewayOffline,
    lastGood: value === undefined ? null : lastGoodOf(value),
    ...next,
    log,
    places: parts.places(sampleOf(row)),
    alarms,
    commands,
    writable: parts.writable(source, id),
  };
}

async function systemsOf(store: Pick<Store, "document">, source: string, id: string): Promise<TagResponse["systems"]> {
  const place = await store.document<StoredTagSystems>(syncSet("tag-system", source), id);
  const held = await Promise.all(
    (place?.systemIds ?? []).map((system) => store.document<Listed<System>>(documentSet("system", source), system)),
  );
  return held.flatMap((system) =>
    system === undefined ? [] : [{ id: system.value.id, displayName: system.value.displayName }],
  );
}

/** The name of the offline gateway behind which every tag of the site is. */
async function gatewayOf({ remembered }: TagParts, { source, siteId }: TagRow): Promise<string | null> {
  const gateways = await remembered.documents<Listed<Gateway>>(documentSet("gateway", source), WATCHED_MS);
  const id = siteId === null ? undefined : offlineGateways(gateways).get(siteId);
  return id === undefined ? null : (gateways.get(id)?.value.displayName ?? id);
}

async function nextOf(
  { store, live }: TagParts,
  source: string,
  id: string,
): Promise<Pick<TagResponse, "everySeconds" | "next">> {
  const known = live(source, id);
  if (known !== null) {
    const { dueAt, everySeconds, reasons } = known;
    const early = dueAt === null ? [] : ["It may go earlier, when a request has a place left."];
    return { everySeconds, next: { at: dueAt, why: [...reasons, ...early].join(" ") } };
  }
  const tag = await store.document<Listed<Tag>>(documentSet("tag", source), id);
  const aside = await store.document<StoredQuarantine>(syncSet("quarantine", source), id);
  const why =
    tag?.missingSince != null
      ? `Complete listings do not show it since ${tag.missingSince}, so it is not asked for.`
      : aside !== undefined
        ? `Set aside until ${aside.until}: ${aside.reason}`
        : "No class of live reads selects it, or the worker has only just started.";
  return { everySeconds: null, next: { at: null, why } };
}

/** Active alarms that name this tag, and no other of its site. */
async function alarmsOf({ remembered, tags }: TagParts, row: TagRow): Promise<TagResponse["alarms"]> {
  const { siteId, source, tag } = row;
  if (siteId === null) return [];
  const all = (await tags.ofSite(source, siteId)).map((each) => ({
    siteId: each.siteId,
    name: each.tag.displayName,
    id: each.tag.id,
  }));
  return activeAlarms(remembered, source, (alarm) => alarm.site.id === siteId && tagOf(alarm, all)?.id === tag.id);
}

/** Sample event of this tag. */
function sampleOf({ source, siteId, tag, value, quality, time }: TagRow): Event {
  const at = time ?? "1970-01-01T00:00:00.000Z";
  return makeEvent({
    type: "tag-value",
    source: sourceUri(source),
    subject: subjectOf("tag", siteId, tag.id),
    time: at,
    siteId,
    data: {
      tag,
      value,
      quality: quality ?? "bad",
      time: at,
      latencyMs: 0,
      lastGood: null,
      behindGateway: null,
    },
    facts: [],
  });
}
