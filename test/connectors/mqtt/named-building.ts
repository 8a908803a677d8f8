import type { Gateway, System, Tag } from "#src/core/model/building.ts";
import {
  type Event,
  type EventData,
  type EventKind,
  eventSubject,
  makeEvent,
  sourceUri,
} from "#src/core/model/event.ts";
import { documentSet, type SetName } from "#src/engine/store/store.ts";
import { syncSet } from "#src/engine/sync/stored-documents.ts";
import { GATEWAY, SYSTEM, sampleEvent, TAG } from "../../sample-events.ts";
import { createMemoryStore } from "../../sync/memory-store.ts";

const START_MS = Date.parse("2026-11-02T06:00:00Z");

/** A building whose stored objects and events change together, as in one commit of the worker. */
export function createNamedBuilding() {
  const store = createMemoryStore();
  const tags = new Map<string, { readonly tag: Tag; readonly site: number }>();
  let eventCount = 0;

  function build<K extends EventKind>(type: K, subject: string, site: number, data: EventData[K]): Event {
    eventCount += 1;
    const time = new Date(START_MS + eventCount * 1_000).toISOString();
    return makeEvent({ type, source: sourceUri("main"), subject, time, siteId: site, data, facts: [eventCount] });
  }

  async function put(set: SetName, id: string, siteId: number | null, value: object): Promise<void> {
    const object = { value, siteId, since: "2026-11-02T06:00:00Z", missingSince: null };
    await store.commit({ documents: [{ set: documentSet(set, "main"), put: [[id, object]] }] });
  }

  return {
    store,
    tags: tags as ReadonlyMap<string, { readonly tag: Tag; readonly site: number }>,

    async setSite(id: number, displayName: string): Promise<Event> {
      await put("site", String(id), null, { id, displayName });
      const data = { site: { id, displayName }, before: {} };
      return build("site-changed", `site/${id}`, id, data);
    },

    async setSiteStatus(id: number, status: EventData["site-status-changed"]["status"]): Promise<Event> {
      const fact = { status, reason: null, since: "2026-11-02T06:00:00Z" };
      await store.commit({ documents: [{ set: syncSet("site-status", "main"), put: [[String(id), fact]] }] });
      return build("site-status-changed", `site/${id}`, id, { site: { id, displayName: "" }, ...fact });
    },

    async removeSite(id: number): Promise<Event> {
      await store.commit({ documents: [{ set: documentSet("site", "main"), remove: [String(id)] }] });
      return build("site-removed", `site/${id}`, id, { site: { id, displayName: "" } });
    },

    async raiseAlarm(): Promise<Event> {
      const event = sampleEvent("alarm-raised");
      const { alarm, episode } = event.data;
      await store.commit({
        documents: [{ set: documentSet("alarm", "main"), put: [[alarm.id, { alarm, episode, state: "active" }]] }],
      });
      return event;
    },

    async setGateway(site: number, displayName: string, id = GATEWAY.id): Promise<Event> {
      const gateway: Gateway = { ...GATEWAY, id, displayName };
      await put("gateway", gateway.id, site, gateway);
      return build("gateway-changed", eventSubject("gateway", site, gateway.id), site, { gateway, before: {} });
    },

    async setSystem(tagId: string, code: string): Promise<Event> {
      const system: System = { ...SYSTEM, code };
      const { tag = TAG, site = 1 } = tags.get(tagId) ?? {};
      await put("system", system.id, site, system);
      const systemsOfTag = { systemIds: [system.id] };
      await store.commit({ documents: [{ set: syncSet("tag-system", "main"), put: [[tagId, systemsOfTag]] }] });
      const data = { tag, systems: [{ id: system.id, code, displayName: system.displayName }], before: [] };
      return build("tag-systems-changed", eventSubject("tag", site, tagId), site, data);
    },

    async setTag(id: string, names: Pick<Tag, "displayName" | "path">, site = 1): Promise<Event> {
      const tag = { ...TAG, id, ...names };
      const isNew = !tags.has(id);
      tags.set(id, { tag, site });
      await put("tag", id, site, tag);
      const subject = eventSubject("tag", site, id);
      return isNew
        ? build("tag-added", subject, site, { tag })
        : build("tag-changed", subject, site, { tag, before: {} });
    },

    async removeTag(id: string): Promise<Event> {
      const { tag = TAG, site = 1 } = tags.get(id) ?? {};
      tags.delete(id);
      await store.commit({ documents: [{ set: documentSet("tag", "main"), remove: [id] }] });
      return build("tag-removed", eventSubject("tag", site, id), site, { tag });
    },

    async readTag(id: string, value: number): Promise<Event> {
      const { tag = TAG, site = 1 } = tags.get(id) ?? {};
      const time = new Date(START_MS + eventCount * 1_000).toISOString();
      await store.commit({
        documents: [{ set: documentSet("value", "main"), put: [[id, { value, quality: "good", time, told: "this" }]] }],
      });
      const data = { tag, value, quality: "good", time, latencyMs: 80, lastGood: { value, time }, behindGateway: null };
      return build("tag-value", eventSubject("tag", site, id), site, data as EventData["tag-value"]);
    },
  };
}
