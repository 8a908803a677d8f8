import type { ConnectorContext, Receipt, SinkState } from "../../src/core/connector.ts";
import type { Site, Tag } from "../../src/core/model/building.ts";
import { type AnyEvent, type Event, eventSourceName, isTelemetry } from "../../src/core/model/event.ts";
import { yieldToEventLoop } from "../../src/core/runtime/waiting.ts";
import { isoUtc } from "../../src/core/values/iso-utc.ts";
import type { MqttConfig } from "./config.ts";
import { buildMessages, listRetainedAspects, type RetainedKind } from "./event-messages.ts";
import { buildStateEvents, createNameLookup } from "./names-for-topics.ts";
import type { MqttMessage } from "./publish-packets.ts";
import { appendTagId, createTopics, formatTopic, type TopicNames, type TopicParts, type Topics } from "./topics.ts";

/** Topics of an object: a pattern such as `plenum/1/tag/7/{aspect}`, and its aspects such as `value`. */
interface RetainedTopics {
  readonly pattern: string;
  readonly aspects: readonly string[];
}

/** Stored topics of an object. The sink stores this document before it publishes on these topics for the first time. */
interface StoredTopics extends RetainedTopics {
  readonly site: string | null;
  readonly wanted?: string;
  /** Former topics whose retained messages the sink must still delete at the broker. */
  readonly former?: readonly RetainedTopics[];
}

interface ObjectTopics {
  readonly kind: RetainedKind;
  readonly source: string;
  readonly id: string;
  site: string | null;
  /** Name and path of the tag in its last event; undefined until the tag's first event after a start. */
  tag: { readonly displayName: string; readonly path: string | undefined } | undefined;
  /** Topic pattern with the tag's name but without its id; undefined if the topic layout contains ids. */
  wanted: string | undefined;
  /** Topic pattern that the object uses; empty until the sink has chosen a pattern. */
  pattern: string;
  aspects: readonly string[];
  former: readonly RetainedTopics[];
  isRemoved: boolean;
}

/** Messages that publish an object's state on its new topics and delete retained messages on its former topics. */
interface TopicMove {
  readonly object: ObjectTopics;
  readonly messages: readonly MqttMessage[];
}

const LAYOUT_KEY = "layout";
const MAX_DOCUMENTS_PER_COMMIT = 250;
const MOVES_PER_BATCH = 100;

/**
 * Stores the retained topics of each object, also over restarts. If a name, site, path or the configuration changes,
 * the object's state moves to new topics. The retained messages on its former topics are deleted.
 */
export function createPublishedTopics(config: MqttConfig, context: ConnectorContext, topics: Topics) {
  const { assignment, building, clock, log, sinkState } = context;
  const nameLookup = createNameLookup(topics, building);
  const objectsByKind = new Map<RetainedKind, Map<string, Map<string, ObjectTopics>>>();
  /** Tags by lower-case topic pattern. A tag uses a pattern only if the pattern fits no other tag. */
  const tagsByPattern = new Map<string, Set<ObjectTopics>>();
  const aspectsByKind = new Map<RetainedKind, readonly string[]>();
  const objectsToMove = new Set<ObjectTopics>();
  const removedObjects = new Set<ObjectTopics>();
  const usesTagName = topics.usesPlaceholder("{tag_name}");
  /** Objects whose topics may be outdated, because a name or the topic layout may have changed. */
  const objectsToCheck = new Set<ObjectTopics>();
  const objectsToStore = new Set<ObjectTopics>();
  const { payload, prefix, retain, topic } = config;
  const topicSettings = JSON.stringify({ payload, prefix, retain, topic });
  let isLoaded = false;

  const namedTopics: Topics = {
    ...topics,
    buildTopic(parts: TopicParts): string {
      const object = parts.source === null ? undefined : findObject(parts.kind as RetainedKind, parts.source, parts.id);
      if (object !== undefined) return formatTopic(object.pattern, parts.aspect);
      return topics.buildTopic(parts, { siteName: nameLookup.getSiteName(parts.source, parts.site) });
    },
  };

  const findObject = (kind: RetainedKind, source: string, id: string) => objectsByKind.get(kind)?.get(source)?.get(id);

  function addObject(object: ObjectTopics): void {
    const objectsBySource = objectsByKind.get(object.kind) ?? new Map<string, Map<string, ObjectTopics>>();
    const objectsById = objectsBySource.get(object.source) ?? new Map<string, ObjectTopics>();
    objectsByKind.set(object.kind, objectsBySource.set(object.source, objectsById.set(object.id, object)));
  }

  function getAspects(kind: RetainedKind): readonly string[] {
    const aspects = aspectsByKind.get(kind) ?? listRetainedAspects(kind, config);
    aspectsByKind.set(kind, aspects);
    return aspects;
  }

  async function loadStoredTopics(): Promise<void> {
    const documents = await sinkState.all<StoredTopics | string>();
    const hasSameTopicSettings = documents.get(LAYOUT_KEY) === topicSettings;
    for (const [key, document] of documents) {
      const [kind, source, id] = JSON.parse(key.startsWith("[") ? key : "[]") as [RetainedKind?, string?, string?];
      if (typeof document === "string" || kind === undefined || source === undefined || id === undefined) continue;
      if (assignment !== undefined && source !== assignment.source) continue;
      const { aspects, former = [], pattern, site, wanted } = document;
      const object = { kind, source, id, site, tag: undefined, wanted, pattern, aspects, former, isRemoved: false };
      addObject(object);
      changePatternUse(object, "add");
      if (!hasSameTopicSettings) objectsToCheck.add(object);
      if (former.length > 0) objectsToMove.add(object);
    }
    isLoaded = true;
  }

  /** Adds a tag to `tagsByPattern`, or deletes the tag from it. Returns the tags whose topics may change. */
  function changePatternUse(object: ObjectTopics, change: "add" | "delete"): readonly ObjectTopics[] {
    if (object.wanted === undefined) return [];
    const affectedTags: ObjectTopics[] = [];
    for (const pattern of listPossiblePatterns(object, object.wanted)) {
      const key = pattern.toLowerCase();
      const tagsOfPattern = tagsByPattern.get(key) ?? new Set();
      tagsByPattern.set(key, tagsOfPattern);
      tagsOfPattern[change](object);
      // If more than two tags have this pattern, no tag uses the pattern, so the change affects no tag.
      if (tagsOfPattern.size === (change === "add" ? 2 : 1)) affectedTags.push(...tagsOfPattern);
      if (tagsOfPattern.size === 0) tagsByPattern.delete(key);
    }
    return affectedTags;
  }

  /** Returns the first possible pattern that fits no other tag. */
  function choosePattern(object: ObjectTopics, wantedPattern: string): string {
    const possiblePatterns = listPossiblePatterns(object, wantedPattern);
    const isPatternFree = (pattern: string) =>
      [...(tagsByPattern.get(pattern.toLowerCase()) ?? [])].every((tag) => tag === object);
    const isPatternReserved = (pattern: string) => pattern === wantedPattern && topics.isReserved(pattern);
    const freePattern = possiblePatterns.find((pattern) => isPatternFree(pattern) && !isPatternReserved(pattern));
    return freePattern ?? appendTagId(possiblePatterns.at(-1) ?? wantedPattern, object.id);
  }

  function hasKnownTag(event: Event): boolean {
    if (!isTelemetry(event.type)) return false;
    const { tag } = (event as Event<"tag-value">).data;
    const object = findObject("tag", eventSourceName(event) ?? "", tag.id);
    if (object === undefined || object.isRemoved || object.tag === undefined) return false;
    const isSameName = !usesTagName || object.tag.displayName === tag.displayName;
    return isSameName && object.tag.path === tag.path && object.site === (event.siteid ?? null);
  }

  async function resolveTopics(batch: readonly AnyEvent[]): Promise<void> {
    const isFirstBatch = !isLoaded;
    if (isFirstBatch) await loadStoredTopics();
    for (const event of batch) for (const object of await updateObjectOfEvent(event)) objectsToCheck.add(object);
    const affectedTags = new Set<ObjectTopics>();
    let checkedCount = 0;
    const removedBeforePublished = new Map<ObjectTopics, string>();
    for (const object of objectsToCheck) {
      for (const affectedTag of changePatternUse(object, "delete")) affectedTags.add(affectedTag);
      if (!object.isRemoved || object.pattern === "") {
        const names = await findNames(object);
        const pattern = topics.buildPattern(object, names);
        const isNamedTag = object.kind === "tag" && (names.path !== undefined || !topics.isLayoutOfEveryKind);
        object.wanted = isNamedTag && !object.isRemoved ? pattern : undefined;
        if (object.isRemoved && isNamedTag) removedBeforePublished.set(object, pattern);
        else if (object.isRemoved) object.pattern = pattern;
        else if (isNamedTag)
          for (const affectedTag of [object, ...changePatternUse(object, "add")]) affectedTags.add(affectedTag);
        else updateTopics(object, pattern);
      } else updateTopics(object, object.pattern);
      checkedCount += 1;
      if (checkedCount % MAX_DOCUMENTS_PER_COMMIT === 0) await yieldToEventLoop();
    }
    for (const object of affectedTags)
      if (!object.isRemoved && object.wanted !== undefined) updateTopics(object, choosePattern(object, object.wanted));
    // A tag removed before its first message has no topics. Do not delete messages of another tag with the same name.
    for (const [object, pattern] of removedBeforePublished) object.pattern = choosePattern(object, pattern);
    objectsToCheck.clear();
    await storeObjectTopics();
    if (isFirstBatch) await sinkState.put(new Map([[LAYOUT_KEY, topicSettings]]));
  }

  /** Updates the object of an event. Returns the objects whose names the event may have changed. */
  async function updateObjectOfEvent(event: AnyEvent): Promise<readonly ObjectTopics[]> {
    const source = eventSourceName(event);
    if (source === null) return [];
    const site = event.siteid ?? null;
    await nameLookup.refreshNames(event.type, source, site);
    const objectsOfSite = nameLookup.changesNamesOfSite(event.type) ? listObjectsOfSite(source, site) : [];
    const isRemoved = event.type.endsWith("-removed") || event.type === "alarm-vanished";
    const subjects = findSubjects(event);
    const objects: ObjectTopics[] = [];
    for (const { id, kind, tag } of subjects) {
      let object = findObject(kind, source, id);
      if (kind === "tag" && tag === undefined) {
        // A rejected command may name any tag, so its topics are stored only if the tag exists.
        if (object !== undefined || (await building.findObject("tag", source, id)) === undefined) continue;
      }
      if (object === undefined) {
        const noTopics = { tag: undefined, wanted: undefined, pattern: "", aspects: [], former: [] };
        object = { kind, source, id, site, isRemoved, ...noTopics };
        addObject(object);
      }
      object.isRemoved = isRemoved;
      if (isRemoved) removedObjects.add(object);
      else removedObjects.delete(object);
      if (tag !== undefined) object.tag = { displayName: usesTagName ? tag.displayName : "", path: tag.path };
      object.site = site;
      objects.push(object);
    }
    return [...objectsOfSite, ...objects];
  }

  function listObjectsOfSite(source: string, site: string | null): readonly ObjectTopics[] {
    return [...objectsByKind.values()].flatMap((objectsBySource) =>
      [...(objectsBySource.get(source)?.values() ?? [])].filter((object) => object.site === site && !object.isRemoved),
    );
  }

  async function findNames(object: ObjectTopics): Promise<TopicNames> {
    const { id, kind, source } = object;
    if (kind === "tag" && object.tag === undefined) {
      const tag = await building.findObject("tag", source, id);
      object.tag = { displayName: usesTagName ? (tag?.displayName ?? id) : "", path: tag?.path };
    }
    return { ...(await nameLookup.findNames(object)), tagName: object.tag?.displayName, path: object.tag?.path };
  }

  /** Gives an object its new topics. Records the topics that the object no longer uses. */
  function updateTopics(object: ObjectTopics, pattern: string): void {
    const aspects = getAspects(object.kind);
    const isNew = object.pattern === "";
    const unusedAspects =
      pattern === object.pattern ? object.aspects.filter((aspect) => !aspects.includes(aspect)) : object.aspects;
    if (!isNew && pattern === object.pattern && unusedAspects.length === 0 && aspects.length === object.aspects.length)
      return;
    if (!isNew && unusedAspects.length > 0) {
      object.former = [...object.former, { pattern: object.pattern, aspects: unusedAspects }];
      objectsToMove.add(object);
    }
    if (object.wanted !== undefined && pattern !== object.wanted)
      log.warn(
        { tag: object.id, topic: pattern },
        "another object has the same topic, so the id of the tag is appended",
      );
    object.pattern = pattern;
    object.aspects = aspects;
    objectsToStore.add(object);
  }

  async function storeObjectTopics(): Promise<void> {
    while (objectsToStore.size > 0) {
      const objects = [...objectsToStore].slice(0, MAX_DOCUMENTS_PER_COMMIT);
      await sinkState.put(new Map(objects.map((object) => [buildDocumentKey(object), toStoredTopics(object)])));
      for (const object of objects) objectsToStore.delete(object);
    }
  }

  /** Returns true if an object uses this topic now, so that its retained message must not be deleted. */
  function isTopicInUse(object: ObjectTopics, pattern: string, aspect: string): boolean {
    return [object, ...(tagsByPattern.get(pattern.toLowerCase()) ?? [])].some(
      (patternUser) =>
        !patternUser.isRemoved && patternUser.pattern === pattern && patternUser.aspects.includes(aspect),
    );
  }

  async function buildTopicMove(object: ObjectTopics): Promise<TopicMove> {
    const events = object.isRemoved ? [] : await buildStateEvents(building, object, isoUtc(clock.now()));
    const states = events.flatMap((event) => buildMessages(event, namedTopics, config)).filter(({ retain }) => retain);
    const topicsToEmpty = object.former.flatMap(({ aspects, pattern }) =>
      aspects.filter((aspect) => !isTopicInUse(object, pattern, aspect)).map((aspect) => formatTopic(pattern, aspect)),
    );
    const emptyMessage = { payload: "", retain: true, contentType: "application/json", properties: {} } as const;
    return { object, messages: [...states, ...topicsToEmpty.map((topic) => ({ topic, ...emptyMessage }))] };
  }

  return {
    topics: namedTopics,

    /** Chooses the topics of a batch's objects. Returns null if all are known, as for nearly all live values. */
    prepareTopics(batch: readonly Event[]): Promise<void> | null {
      if (isLoaded && objectsToMove.size + objectsToCheck.size + objectsToStore.size === 0 && batch.every(hasKnownTag))
        return null;
      return resolveTopics(batch as readonly AnyEvent[]);
    },

    /** Returns messages that move objects to new topics. The sink publishes these messages before the batch. */
    async buildNextMoves(): Promise<readonly TopicMove[]> {
      const moves: TopicMove[] = [];
      for (const object of [...objectsToMove].slice(0, MOVES_PER_BATCH)) moves.push(await buildTopicMove(object));
      return moves;
    },

    /** Forgets the former topics of objects after the broker has acknowledged their moves. */
    async settleMoves(moves: readonly TopicMove[]): Promise<void> {
      for (const { object } of moves) {
        object.former = [];
        objectsToStore.add(object);
      }
      await storeObjectTopics();
      for (const { object } of moves) objectsToMove.delete(object);
    },

    /** Forgets removed objects after the broker has acknowledged the deletion of their retained messages. */
    deleteRemovedObjects(): Pick<Receipt, "stateChanges"> {
      if (removedObjects.size === 0) return {};
      const deletions = new Map([...removedObjects].map((object) => [buildDocumentKey(object), null] as const));
      for (const { id, kind, source } of removedObjects) objectsByKind.get(kind)?.get(source)?.delete(id);
      removedObjects.clear();
      return { stateChanges: deletions };
    },
  };
}

/** Lists the patterns of a tag in order of preference: its name, the name with its id, and also with its source. */
function listPossiblePatterns({ id, source }: ObjectTopics, wanted: string): readonly string[] {
  return [wanted, appendTagId(wanted, id), appendTagId(wanted, `${source}-${id}`)];
}

const buildDocumentKey = ({ id, kind, source }: Pick<ObjectTopics, "id" | "kind" | "source">) =>
  JSON.stringify([kind, source, id]);

function toStoredTopics({ aspects, former, pattern, site, wanted }: ObjectTopics): StoredTopics {
  return {
    pattern,
    aspects,
    site,
    ...(wanted === undefined ? {} : { wanted }),
    ...(former.length === 0 ? {} : { former }),
  };
}

interface EventSubject {
  readonly kind: RetainedKind;
  readonly id: string;
  readonly tag?: Tag;
}

/** Returns the objects whose states an event publishes. */
function findSubjects({ data, type }: AnyEvent): readonly EventSubject[] {
  if (!/^(?:tag|alarm|gateway|host|system|site|command)-/.test(type)) return [];
  if ("tag" in data) return [{ kind: "tag", id: data.tag.id, tag: data.tag }];
  if ("tagId" in data) return data.tagId === null ? [] : [{ kind: "tag", id: data.tagId }];
  if ("alarm" in data) return [{ kind: "alarm", id: data.alarm.id }];
  if ("gateway" in data) return [{ kind: "gateway", id: data.gateway.id }];
  if ("host" in data) return [{ kind: "host", id: data.host.id }];
  if ("system" in data) return [{ kind: "system", id: data.system.id }];
  if (!("site" in data) || data.site === null) return [];
  const id = String((data.site as Site).id);
  const statusSubject: EventSubject = { kind: "site-status", id };
  if (type === "site-status-changed") return [statusSubject];
  return type === "site-removed" ? [{ kind: "site", id }, statusSubject] : [{ kind: "site", id }];
}

/** Returns the topic on which the sink publishes an event; null before it has published the event's object. */
export async function findPublishedTopic(
  config: MqttConfig,
  event: Event,
  sinkState: Pick<SinkState, "get">,
): Promise<string | null> {
  const [subject] = findSubjects(event as AnyEvent);
  if (subject === undefined) return null;
  const key = buildDocumentKey({ ...subject, source: eventSourceName(event) ?? "" });
  const storedTopics = await sinkState.get<StoredTopics>(key);
  if (storedTopics === undefined) return null;
  const buildTopic = ({ aspect }: TopicParts) => formatTopic(storedTopics.pattern, aspect);
  const topics = { ...createTopics(config.prefix, config.topic), buildTopic };
  return buildMessages(event, topics, config)[0]?.topic ?? null;
}
