import type { BuildingView } from "../../src/core/connector.ts";
import {
  type Event,
  type EventData,
  type EventKind,
  eventSubject,
  makeEvent,
  sourceUri,
} from "../../src/core/model/event.ts";
import type { RetainedKind } from "./event-messages.ts";
import type { TopicNames, Topics } from "./topics.ts";

interface PublishedObject {
  readonly kind: RetainedKind;
  readonly source: string;
  readonly id: string;
  readonly site: string | null;
}

/** Looks up the names of sites, gateways and systems that the topic layout contains. */
export function createNameLookup(topics: Pick<Topics, "usesPlaceholder">, building: BuildingView) {
  const usesSiteName = topics.usesPlaceholder("{site_name}");
  const usesGateway = topics.usesPlaceholder("{gateway}");
  const usesSystem = topics.usesPlaceholder("{system}");
  const siteNames = new Map<string, string | undefined>();
  /** Gateway names, only for sites with a single gateway: the service does not report which gateway a tag has. */
  let gatewayNames: ReadonlyMap<string, string> | null = null;

  async function findSiteName(source: string, site: string | null): Promise<string | undefined> {
    if (!usesSiteName || site === null) return undefined;
    const key = `${source} ${site}`;
    if (!siteNames.has(key)) siteNames.set(key, (await building.findObject("site", source, site))?.displayName);
    return siteNames.get(key);
  }

  async function findGatewayName(source: string, site: string | null): Promise<string | undefined> {
    if (!usesGateway) return undefined;
    if (gatewayNames === null) {
      const gateways = (await building.inventory("gateway")).filter(({ isListed }) => isListed);
      const gatewaysBySite = Map.groupBy(gateways, ({ siteId, source: gatewaySource }) => `${gatewaySource} ${siteId}`);
      gatewayNames = new Map(
        [...gatewaysBySite].flatMap(([key, [firstGateway, ...otherGateways]]) =>
          firstGateway === undefined || otherGateways.length > 0
            ? []
            : [[key, firstGateway.value.displayName] as const],
        ),
      );
    }
    return gatewayNames.get(`${source} ${site}`);
  }

  /** Returns the code of the first system that lists a tag, or the name of a system without a code. */
  async function findSystemName({ id, kind, source }: PublishedObject): Promise<string | undefined> {
    if (!usesSystem || kind !== "tag") return undefined;
    const [firstSystem] = (await building.systemsOf(source, id)).toSorted((a, b) => Number(a.id) - Number(b.id));
    return firstSystem === undefined || firstSystem.code.trim() !== "" ? firstSystem?.code : firstSystem.displayName;
  }

  return {
    async refreshNames(type: EventKind, source: string, site: string | null): Promise<void> {
      if (/^site-(?:added|changed)$/.test(type)) siteNames.delete(`${source} ${site}`);
      if (/^gateway-(?:added|changed|removed)$/.test(type)) gatewayNames = null;
      await findSiteName(source, site);
    },
    changesNamesOfSite: (type: EventKind) =>
      (usesSiteName && /^site-(?:added|changed)$/.test(type)) ||
      (usesGateway && /^gateway-(?:added|changed|removed)$/.test(type)) ||
      (usesSystem && /^system-(?:added|changed|removed)$/.test(type)),
    getSiteName: (source: string | null, site: string | null) => siteNames.get(`${source} ${site}`),
    async findNames(object: PublishedObject): Promise<TopicNames> {
      return {
        siteName: await findSiteName(object.source, object.site),
        gateway: await findGatewayName(object.source, object.site),
        system: await findSystemName(object),
      };
    },
  };
}

/** Builds events from the stored state of an object, to publish the state again on other topics. */
export async function buildStateEvents(
  building: BuildingView,
  { id, kind, site, source }: PublishedObject,
  nowUtc: string,
): Promise<readonly Event[]> {
  const subject = eventSubject(kind === "site-status" ? "site" : kind, site, id);
  const buildEvent = <K extends EventKind>(type: K, data: EventData[K], time = nowUtc): Event =>
    makeEvent({ type, source: sourceUri(source), subject, siteId: site, time, data, facts: ["moved", time] });
  if (kind === "alarm") {
    const view = await building.findAlarm(source, id);
    if (view === undefined || view.state === "vanished") return [];
    const alarmFact = { alarm: view.alarm, episode: view.episode, late: false, behindGateway: null };
    if (view.state === "out-of-scope") return [buildEvent("alarm-out-of-scope", alarmFact)];
    if (view.state === "resolved") return [buildEvent("alarm-resolved", alarmFact)];
    return [buildEvent("alarm-raised", { ...alarmFact, initial: true }, view.alarm.triggeredAt)];
  }
  if (kind === "site-status") {
    const view = await building.findSiteStatus(source, id);
    if (view === undefined) return [];
    const { source: _source, ...fact } = view;
    return [buildEvent("site-status-changed", fact)];
  }
  if (kind !== "tag") {
    const object = await building.findObject(kind, source, id);
    return object === undefined ? [] : [buildEvent(`${kind}-added`, { [kind]: object } as never)];
  }
  const tag = await building.findObject("tag", source, id);
  if (tag === undefined) return [];
  const events = [buildEvent("tag-added", { tag })];
  const systems = (await building.systemsOf(source, id)).map((system) => ({
    id: system.id,
    code: system.code,
    displayName: system.displayName,
  }));
  if (systems.length > 0) events.push(buildEvent("tag-systems-changed", { tag, systems, before: [] }));
  const view = await building.findValue(source, id);
  if (view === undefined) return events;
  const { source: _source, siteId: _siteId, ...reading } = view;
  const data = { ...reading, latencyMs: 0, behindGateway: null };
  return [...events, buildEvent("tag-value", data, reading.time)];
}
