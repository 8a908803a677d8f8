import type {
  Inventory,
  Picture,
  Pictured,
  PicturedAlarm,
  PicturedTagSystems,
  PicturedValue,
} from "../../core/connector.ts";
import type { System, Tag } from "../../core/model/building.ts";
import { covers, silencesIn } from "../silence/silence.ts";
import { documentSet, type SnapshotName } from "../store/store.ts";
import {
  type Held,
  type HeldAlarm,
  type HeldPoll,
  type HeldTagPlace,
  type HeldTagSeen,
  type HeldValue,
  lastGoodOf,
  syncSet,
} from "../sync/snapshot.ts";
import { type CurveStore, createCurves } from "./curves.ts";

/** What the snapshots of all sources say, for connectors. `zones`: of each source, by name, the zone of its buildings. */
export function createPicture(store: CurveStore, zones: ReadonlyMap<string, string>): Picture {
  async function ofAll<H, P>(
    name: SnapshotName,
    picture: (source: string, key: string, held: H) => P | undefined,
  ): Promise<readonly P[]> {
    const pictured: P[] = [];
    for (const source of zones.keys()) {
      for (const [key, held] of await store.documents<H>(documentSet(name, source))) {
        const one = picture(source, key, held);
        if (one !== undefined) pictured.push(one);
      }
    }
    return pictured;
  }

  async function one<N extends keyof Inventory>(noun: N, source: string, id: string) {
    const held = await store.document<Held<Inventory[N]>>(documentSet(noun, source), id);
    return held?.value;
  }

  return {
    one,
    async firstListed(noun, source, id) {
      return (await store.document<Held<unknown>>(documentSet(noun, source), id))?.since;
    },
    async hasListedSystems(source, siteId) {
      const seen = await store.document<HeldTagSeen>(syncSet("tag-seen", source), siteId);
      if ((seen?.systems ?? null) !== null) return true;
      // The poll of tags has ended well and learned no systems: they are not followed.
      const poll = await store.document<HeldPoll>(documentSet("poll", source), "tags");
      return (poll?.lastSuccess ?? null) !== null;
    },
    async systemsOf(source, tagId) {
      const place = await store.document<HeldTagPlace>(syncSet("tag-system", source), tagId);
      const systems = await Promise.all((place?.systemIds ?? []).map((id) => one("system", source, id)));
      return systems.filter((system): system is System => system !== undefined);
    },
    timeZone: (source) => zones.get(source) ?? "UTC",
    async isWhole() {
      for (const source of zones.keys()) {
        const polls = await store.documents<HeldPoll>(documentSet("poll", source));
        if (!["alarms", "tags"].every((job) => (polls.get(job)?.lastSuccess ?? null) !== null)) return false;
      }
      return true;
    },
    async silences() {
      return (await silencesIn(store)).map((silence) => ({
        fromMs: Date.parse(silence.from),
        toMs: Date.parse(silence.to),
        covers: (source, alarm) => covers(silence, source, alarm),
      }));
    },
    async activeAlarms() {
      const alarms = await ofAll("alarm", (source, _, held: HeldAlarm) => pictured(source, held));
      return alarms.filter(({ state }) => state === "active");
    },
    async alarm(source, id) {
      const held = await store.document<HeldAlarm>(documentSet("alarm", source), id);
      return held === undefined ? undefined : pictured(source, held);
    },
    curves: createCurves(store),
    inventory: (noun) => ofAll(noun, inventoried<never>),
    async tagSystems() {
      const all: PicturedTagSystems[] = [];
      for (const source of zones.keys()) {
        const tags = await store.documents<Held<Tag>>(documentSet("tag", source));
        const systems = await store.documents<Held<System>>(documentSet("system", source));
        for (const [id, { systemIds }] of await store.documents<HeldTagPlace>(
          syncSet("tag-system", source),
        )) {
          const held = tags.get(id);
          if (held?.missingSince !== null || systemIds.length === 0) continue;
          const named = systemIds.flatMap((systemId) => systems.get(systemId)?.value ?? []);
          all.push({
            source,
            siteId: held.siteId,
            tag: held.value,
            systems: named.map(({ id: systemId, code, displayName }) => ({
              id: systemId,
              code,
              displayName,
            })),
          });
        }
      }
      return all;
    },
    async values() {
      const tags = new Map(
        (await ofAll("tag", inventoried<Tag>)).map((each) => [`${each.source} ${each.value.id}`, each]),
      );
      return ofAll("value", (source, id, held: HeldValue): PicturedValue | undefined => {
        const tag = tags.get(`${source} ${id}`);
        if (tag === undefined) return undefined;
        const { quality, time, value } = held;
        const lastGood = lastGoodOf(held);
        return { source, siteId: tag.siteId, tag: tag.value, value, quality, time, lastGood };
      });
    },
  };
}

function pictured(source: string, { alarm, episode, state }: HeldAlarm): PicturedAlarm {
  return { source, alarm, episode, state };
}

function inventoried<T>(source: string, _: string, held: Held<T>): Pictured<T> {
  return { source, siteId: held.siteId, value: held.value, isThere: held.missingSince === null };
}
