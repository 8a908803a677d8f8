import type {
  AlarmView,
  BuildingView,
  ListedInventoryObject,
  ObjectByNoun,
  TagValueView,
} from "../../core/connector.ts";
import type { Site, System, Tag } from "../../core/model/building.ts";
import { getSilences, isAlarmSilenced } from "../silence/alarm-silences.ts";
import { documentSet, type SetName } from "../store/store.ts";
import {
  lastGoodOf,
  type StoredAlarm,
  type StoredGatewayCheck,
  type StoredJob,
  type StoredObject,
  type StoredSiteStatus,
  type StoredTagListTimes,
  type StoredTagSystems,
  type StoredValue,
  syncSet,
} from "../sync/stored-documents.ts";
import { type AlarmTimeSeriesStore, createAlarmTimeSeriesReader } from "./tag-values-around-alarm.ts";

/** Gives connectors read access to stored tags, alarms and systems; `zones` has the time zone of each source. */
export function createBuildingView(store: AlarmTimeSeriesStore, zones: ReadonlyMap<string, string>): BuildingView {
  async function collectFromSources<P>(collect: (source: string) => Promise<readonly P[]>): Promise<readonly P[]> {
    const viewsBySource = await Array.fromAsync(zones.keys(), collect);
    return viewsBySource.flat();
  }

  const mapStoredDocuments = <H, P>(
    name: SetName,
    toView: (source: string, key: string, document: H) => P | undefined,
  ) =>
    collectFromSources(async (source) => {
      const documents = await store.documents<H>(documentSet(name, source));
      return [...documents].flatMap(([key, document]) => toView(source, key, document) ?? []);
    });

  async function findObject<N extends keyof ObjectByNoun>(noun: N, source: string, id: string) {
    return (await store.document<StoredObject<ObjectByNoun[N]>>(documentSet(noun, source), id))?.value;
  }

  return {
    findObject,
    async firstListedAt(noun, source, id) {
      return (await store.document<StoredObject<unknown>>(documentSet(noun, source), id))?.since;
    },
    async hasListedSystems(source, siteId) {
      const tagsSeenAtSite = await store.document<StoredTagListTimes>(syncSet("tag-seen", source), siteId);
      if ((tagsSeenAtSite?.systems ?? null) !== null) return true;
      // A successful poll of tags without systems means that Plenum does not request systems.
      const tagPoll = await store.document<StoredJob>(documentSet("poll", source), "tags");
      return (tagPoll?.lastSuccess ?? null) !== null;
    },
    async systemsOf(source, tagId) {
      const storedSystems = await store.document<StoredTagSystems>(syncSet("tag-system", source), tagId);
      const systems = await Promise.all((storedSystems?.systemIds ?? []).map((id) => findObject("system", source, id)));
      return systems.filter((system): system is System => system !== undefined);
    },
    timeZone: (source) => zones.get(source) ?? "UTC",
    async isComplete() {
      for (const source of zones.keys()) {
        const pollByJob = await store.documents<StoredJob>(documentSet("poll", source));
        if (!["alarms", "tags"].every((job) => (pollByJob.get(job)?.lastSuccess ?? null) !== null)) return false;
      }
      return true;
    },
    async silences() {
      return (await getSilences(store)).map((silence) => ({
        fromMs: Date.parse(silence.from),
        toMs: Date.parse(silence.to),
        covers: (source, alarm) => isAlarmSilenced(silence, source, alarm),
      }));
    },
    pendingGatewayChecks: () =>
      collectFromSources(async (source) => {
        const checks = await store.documents<StoredGatewayCheck>(syncSet("gateway-check", source));
        return [...checks].map(([id, { since }]) => ({ source, siteId: Number(id), sinceMs: Date.parse(since) }));
      }),
    async activeAlarms() {
      const alarms = await mapStoredDocuments("alarm", (source, _, storedAlarm: StoredAlarm) =>
        toAlarmView(source, storedAlarm),
      );
      return alarms.filter(({ state }) => state === "active");
    },
    async findAlarm(source, id) {
      const storedAlarm = await store.document<StoredAlarm>(documentSet("alarm", source), id);
      return storedAlarm === undefined ? undefined : toAlarmView(source, storedAlarm);
    },
    timeSeries: createAlarmTimeSeriesReader(store),
    inventory: (noun) => mapStoredDocuments(noun, toListedObject<never>),
    tagSystems: () =>
      collectFromSources(async (source) => {
        const tags = await store.documents<StoredObject<Tag>>(documentSet("tag", source));
        const systems = await store.documents<StoredObject<System>>(documentSet("system", source));
        const tagSystems = await store.documents<StoredTagSystems>(syncSet("tag-system", source));
        return [...tagSystems].flatMap(([tagId, { systemIds }]) => {
          const storedTag = tags.get(tagId);
          if (storedTag?.missingSince !== null || systemIds.length === 0) return [];
          const systemsOfTag = systemIds.flatMap((systemId) => systems.get(systemId)?.value ?? []);
          const systemNames = systemsOfTag.map(({ id, code, displayName }) => ({ id, code, displayName }));
          return [{ source, siteId: storedTag.siteId, tag: storedTag.value, systems: systemNames }];
        });
      }),
    async findSiteStatus(source, siteId) {
      const status = await store.document<StoredSiteStatus>(syncSet("site-status", source), siteId);
      const site = await findObject("site", source, siteId);
      return status === undefined || site === undefined ? undefined : { source, site, ...status };
    },
    siteStatuses: () =>
      collectFromSources(async (source) => {
        const sites = await store.documents<StoredObject<Site>>(documentSet("site", source));
        const statuses = await store.documents<StoredSiteStatus>(syncSet("site-status", source));
        return [...statuses].flatMap(([siteId, status]) => {
          const site = sites.get(siteId)?.value;
          return site === undefined ? [] : [{ source, site, ...status }];
        });
      }),
    async values() {
      const tags = new Map(
        (await mapStoredDocuments("tag", toListedObject<Tag>)).map((each) => [`${each.source} ${each.value.id}`, each]),
      );
      return mapStoredDocuments("value", (source, id, storedValue: StoredValue) =>
        toTagValueView(source, tags.get(`${source} ${id}`), storedValue),
      );
    },
    async findValue(source, tagId) {
      const tag = await store.document<StoredObject<Tag>>(documentSet("tag", source), tagId);
      const storedValue = await store.document<StoredValue>(documentSet("value", source), tagId);
      return storedValue === undefined ? undefined : toTagValueView(source, tag, storedValue);
    },
  };
}

function toTagValueView(
  source: string,
  tag: Pick<StoredObject<Tag>, "siteId" | "value"> | undefined,
  storedValue: StoredValue,
): TagValueView | undefined {
  if (tag === undefined) return undefined;
  const { quality, staleReason, time, value } = storedValue;
  const lastGood = lastGoodOf(storedValue);
  const fields = { source, siteId: tag.siteId, tag: tag.value, value, quality, time, lastGood };
  return staleReason === undefined ? fields : { ...fields, staleReason };
}

function toAlarmView(source: string, { alarm, episode, state }: StoredAlarm): AlarmView {
  return { source, alarm, episode, state };
}

function toListedObject<T>(source: string, _: string, storedObject: StoredObject<T>): ListedInventoryObject<T> {
  const { siteId, value, missingSince } = storedObject;
  return { source, siteId, value, isListed: missingSince === null };
}
