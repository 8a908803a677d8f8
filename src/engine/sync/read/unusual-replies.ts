import type { Clock } from "../../../core/runtime/clock.ts";
import type { Log } from "../../../core/runtime/log.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import type { TagReadReply } from "../../source/source.ts";
import type { Store } from "../../store/store.ts";
import { type StoredLeftOut, syncSet } from "../stored-documents.ts";
import { tagQuarantineMs } from "./refused-tag-search.ts";

const LOGGED_TAGS_MAX = 20;
/** If at least this many tags, and more than a third of a reply, are unreadable, no single tag is the cause. */
const UNREADABLE_TAGS_MIN = 5;

/** Tracks tags without a usable value in a reply. Requests a tag singly if it is unreadable together with others. */
export function createLeftOutTags(options: {
  readonly store: Pick<Store, "documents">;
  readonly source: string;
  readonly log: Pick<Log, "info" | "warn">;
  readonly clock: Pick<Clock, "monotonic">;
}) {
  const { store, log, clock } = options;
  const leftOutDocumentSet = syncSet("left-out", options.source);
  let leftOutById: Map<string, StoredLeftOut> | null = null;
  const singlyReadTags = new Map<string, { readCount: number; singleUntilMs: number }>();

  function updateSinglyReadTags(
    requestedIds: readonly string[],
    unreadableIds: readonly string[],
    leftOutIdsBefore: ReadonlySet<string>,
  ): void {
    const [singleId] = requestedIds;
    if (requestedIds.length === 1 && singleId !== undefined) {
      const singlyReadTag = singlyReadTags.get(singleId);
      if (unreadableIds.length > 0) singlyReadTags.delete(singleId);
      else if (singlyReadTag?.singleUntilMs === Number.POSITIVE_INFINITY) {
        singlyReadTag.readCount += 1;
        singlyReadTag.singleUntilMs = clock.monotonic() + tagQuarantineMs(singlyReadTag.readCount);
      }
      return;
    }
    for (const id of requestedIds) if (!unreadableIds.includes(id)) singlyReadTags.delete(id);
    if (unreadableIds.length >= UNREADABLE_TAGS_MIN && 3 * unreadableIds.length > requestedIds.length) return;
    for (const id of unreadableIds.filter((id) => !leftOutIdsBefore.has(id))) {
      const readCount = singlyReadTags.get(id)?.readCount ?? 0;
      singlyReadTags.set(id, { readCount, singleUntilMs: Number.POSITIVE_INFINITY });
    }
  }

  return {
    async prepareChange(
      requestedIds: readonly string[],
      values: ReadonlyMap<string, unknown>,
      reply: Pick<TagReadReply, "unreadTags" | "receivedAtMs">,
    ) {
      const storedLeftOut = leftOutById ?? new Map(await store.documents<StoredLeftOut>(leftOutDocumentSet));
      leftOutById = storedLeftOut;
      const leftOutReasonsById = new Map((reply.unreadTags ?? []).map((unreadTag) => [unreadTag.id, unreadTag]));
      const receivedAt = isoUtc(reply.receivedAtMs);
      const missingTagIds = requestedIds.filter((id) => !values.has(id));
      const changedEntries = missingTagIds.flatMap((id): [string, StoredLeftOut][] => {
        const { kind, reason } = leftOutReasonsById.get(id) ?? NOT_LISTED_IN_REPLY;
        const previousEntry = storedLeftOut.get(id);
        if (previousEntry?.kind === kind && previousEntry.reason === reason) return [];
        return [[id, { since: previousEntry?.since ?? receivedAt, kind, reason }]];
      });
      const recoveredTagIds = requestedIds.filter((id) => values.has(id) && storedLeftOut.has(id));
      const onCommitted = () => {
        const unreadableTagIds = missingTagIds.filter((id) => leftOutReasonsById.get(id)?.kind === "unreadable");
        updateSinglyReadTags(requestedIds, unreadableTagIds, new Set(storedLeftOut.keys()));
        const newlyUnusableTags = changedEntries.filter(([id, { kind }]) => storedLeftOut.get(id)?.kind !== kind);
        for (const [id, entry] of changedEntries) storedLeftOut.set(id, entry);
        for (const id of recoveredTagIds) storedLeftOut.delete(id);
        if (newlyUnusableTags.length > 0) {
          const loggedTags = newlyUnusableTags.slice(0, LOGGED_TAGS_MAX);
          const tags = Object.fromEntries(loggedTags.map(([id, { reason }]) => [id, reason]));
          log.warn({ tags, count: newlyUnusableTags.length }, "requested tags have no value in the reply");
        }
        if (recoveredTagIds.length > 0)
          log.info({ tags: recoveredTagIds }, "tags that had no value in the replies have one again");
      };
      return { documents: { set: leftOutDocumentSet, put: changedEntries, remove: recoveredTagIds }, onCommitted };
    },
    get: (id: string): StoredLeftOut | undefined => leftOutById?.get(id),
    getAll: (): ReadonlyMap<string, StoredLeftOut> | null => leftOutById,
    hasSinglyReadTags: () => singlyReadTags.size > 0,
    labelOf: (id: string) => (clock.monotonic() < (singlyReadTags.get(id)?.singleUntilMs ?? 0) ? `single ${id}` : null),
  };
}

const NOT_LISTED_IN_REPLY = { kind: "unanswered", reason: "The reply does not list it." } as const;

export interface JudgedReading {
  readonly id: string;
  readonly siteId: number;
  readonly isNull: boolean;
  readonly hasTurnedNull: boolean;
  readonly wasTypeKnown: boolean;
  readonly hasTypeChanged: boolean;
  readonly isTypeUnverified: boolean;
}

export interface SuddenValueChange {
  readonly what: "types" | "nulls";
  readonly siteIds: readonly number[];
  readonly since: string;
  readonly tags: number;
}

/** Minimum number of tags of a sudden change; fewer tags often change together with one device. */
const SUDDENLY_CHANGED_TAGS_MIN = 5;
const LATEST_READINGS_MAX = 20;

/** True if more than a third of the tags in a reply, and at least 5, changed between number and boolean. */
export function haveManyTypesChanged(readings: readonly JudgedReading[]): boolean {
  const knownTypeCount = readings.filter(({ wasTypeKnown }) => wasTypeKnown).length;
  const changedTypeCount = readings.filter(({ hasTypeChanged }) => hasTypeChanged).length;
  return changedTypeCount >= SUDDENLY_CHANGED_TAGS_MIN && 3 * changedTypeCount > knownTypeCount;
}

interface OpenSuddenChange {
  readonly what: SuddenValueChange["what"];
  readonly sinceMs: number;
  readonly siteIds: Set<number>;
  readonly tagIds: Set<string>;
  maxTagCount: number;
}

/** Logs when many values turn null or change their type at once. */
export function watchSuddenChanges(clock: Clock, log: Pick<Log, "info" | "warn">, isWatched: (id: string) => boolean) {
  const latestReadings = new Map<number, Map<string, boolean>>();
  const nullChangesBySite = new Map<number, OpenSuddenChange>();
  let typeChange: OpenSuddenChange | null = null;

  const createSuddenChange = (what: SuddenValueChange["what"]): OpenSuddenChange => ({
    ...{ what, sinceMs: clock.now(), siteIds: new Set(), tagIds: new Set(), maxTagCount: 0 },
  });
  function addReadingToChange(change: OpenSuddenChange, siteId: number, id: string): void {
    change.siteIds.add(siteId);
    change.tagIds.add(id);
    change.maxTagCount = Math.max(change.maxTagCount, change.tagIds.size);
  }
  function removeSettledTags({ tagIds }: OpenSuddenChange, settledReadings: readonly JudgedReading[]): void {
    for (const { id } of settledReadings) tagIds.delete(id);
    for (const id of tagIds) if (!isWatched(id)) tagIds.delete(id);
  }

  function noteTypeChanges(readings: readonly JudgedReading[]): void {
    const verifiedReadings = readings.filter(({ isNull, isTypeUnverified }) => !isNull && !isTypeUnverified);
    if (typeChange !== null) removeSettledTags(typeChange, verifiedReadings);
    if (haveManyTypesChanged(readings)) {
      const changedReadings = readings.filter(({ hasTypeChanged }) => hasTypeChanged);
      typeChange ??= createSuddenChange("types");
      for (const { id, siteId } of changedReadings) addReadingToChange(typeChange, siteId, id);
      log.warn(
        { tags: changedReadings.map(({ id }) => id), read: readings.length },
        "more than a third of the values of a reply changed between number and boolean: they are uncertain until a further reading confirms them",
      );
    } else if (typeChange?.tagIds.size === 0) {
      typeChange = null;
      log.info({}, "values that changed their type together are confirmed or have their former type again");
    }
  }

  /** Returns true if 5 of the last 20 readings of the site turned null, or all of fewer than 5. */
  function noteNullReadings(siteId: number, readings: readonly JudgedReading[]): boolean {
    const tags = latestReadings.get(siteId) ?? new Map<string, boolean>();
    latestReadings.set(siteId, tags);
    for (const { id, hasTurnedNull } of readings) {
      tags.delete(id);
      tags.set(id, hasTurnedNull);
    }
    for (const id of tags.keys()) if (tags.size > LATEST_READINGS_MAX) tags.delete(id);
    const nullReadings = readings.filter(({ hasTurnedNull }) => hasTurnedNull);
    const nullReadingsMin = Math.max(2, Math.min(SUDDENLY_CHANGED_TAGS_MIN, tags.size));
    const haveManyTurnedNull = nullReadings.length > 0 && [...tags.values()].filter(Boolean).length >= nullReadingsMin;
    const openNullChange = nullChangesBySite.get(siteId);
    if (openNullChange !== undefined) {
      const readableTags = readings.filter(({ isNull }) => !isNull);
      removeSettledTags(openNullChange, readableTags);
      for (const { id } of nullReadings) addReadingToChange(openNullChange, siteId, id);
      if (2 * openNullChange.tagIds.size >= openNullChange.maxTagCount) return haveManyTurnedNull;
      nullChangesBySite.delete(siteId);
      log.info({ site: siteId }, "most of the values that turned null at once can be read again");
    } else if (haveManyTurnedNull) {
      const newNullChange = createSuddenChange("nulls");
      for (const [id, hasTurnedNull] of tags) if (hasTurnedNull) addReadingToChange(newNullChange, siteId, id);
      nullChangesBySite.set(siteId, newNullChange);
      const logFields = { site: siteId, tags: [...newNullChange.tagIds], read: tags.size };
      log.warn(logFields, "many values of a site turned null at once: they are published as bad");
    }
    return haveManyTurnedNull;
  }

  return {
    noteCommittedReadings(readings: readonly JudgedReading[]): ReadonlySet<number> {
      noteTypeChanges(readings);
      const readingsBySite = Map.groupBy(readings, ({ siteId }) => siteId);
      const sitesWithNulls = [...readingsBySite].filter(([siteId, ofSite]) => noteNullReadings(siteId, ofSite));
      return new Set(sitesWithNulls.map(([siteId]) => siteId));
    },
    openChanges(): readonly SuddenValueChange[] {
      const openChanges = [...(typeChange === null ? [] : [typeChange]), ...nullChangesBySite.values()];
      return openChanges.flatMap(({ what, sinceMs, siteIds, tagIds }) => {
        const tags = [...tagIds].filter(isWatched).length;
        return tags === 0 ? [] : [{ what, siteIds: [...siteIds], since: isoUtc(sinceMs), tags }];
      });
    },
  };
}
