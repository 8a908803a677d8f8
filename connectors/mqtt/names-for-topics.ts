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

/** Looks up the names that a layout contains, and only these. */
export function createNameLookup(topics: Pick<Topics, "uses">, building: BuildingView) {
  const takesSiteName = topics.uses("{site_name}");
  const takesGateway = topics.uses("{gateway}");
  const takesSystem = topics.uses("{system}");
  const siteNames = new Map<string, string | undefined>();
  /** Name of the only gateway of each site: the service states no gateway of a tag. */
  let gatewayNames: ReadonlyMap<string, string> | null = null;

  async function findSiteName(source: string, site: string | null): Promise<string | undefined> {
    if (!takesSiteName || site === null) return undefined;
    const key = `${source} ${site}`;
    if (!siteNames.has(key)) siteNames.set(key, (await building.findObject("site", source, site))?.displayName);
    return siteNames.get(key);
  }

  async function findGatewayName(source: string, site: string | null): Promise<string | undefined> {
    if (!takesGateway) return undefined;
    if (gatewayNames === null) {
      const gateways = (await building.inventory("gateway")).filter(({ isThere }) => isThere);
      const bySite = Map.groupBy(gateways, ({ siteId, source: ofSource }) => `${ofSource} ${siteId}`);
      gatewayNames = new Map(
        [...bySite].flatMap(([key, [only, ...others]]) =>
          only === undefined || others.length > 0 ? [] : [[key, only.value.displayName] as const],
        ),
      );
    }
    return gatewayNames.get(`${source} ${site}`);
  }

  /** Code of the first system that lists the tag; its name where it has no code. */
  async function findSystemName({ id, kind, source }: PublishedObject): Promise<string | undefined> {
    if (!takesSystem || kind !== "tag") return undefined;
    const [first] = (await building.systemsOf(source, id)).toSorted((a, b) => Number(a.id) - Number(b.id));
    return first === undefined || first.code.trim() !== "" ? first?.code : first.displayName;
  }

  return {
    /** Forgets names that an event of a site changes, and looks the name of the site up. */
    async noteEvent(type: EventKind, source: string, site: string | null): Promise<void> {
      if (/^site-(?:added|changed)$/.test(type)) siteNames.delete(`${source} ${site}`);
      if (/^gateway-(?:added|changed|removed)$/.test(type)) gatewayNames = null;
      await findSiteName(source, site);
    },
    changesNamesOfSite: (type: EventKind) =>
      (takesSiteName && /^site-(?:added|changed)$/.test(type)) ||
      (takesGateway && /^gateway-(?:added|changed|removed)$/.test(type)) ||
      (takesSystem && /^system-(?:added|changed|removed)$/.test(type)),
    knownSiteName: (source: string | null, site: string | null) => siteNames.get(`${source} ${site}`),
    async findNames(object: PublishedObject): Promise<TopicNames> {
      return {
        siteName: await findSiteName(object.source, object.site),
        gateway: await findGatewayName(object.source, object.site),
        system: await findSystemName(object),
      };
    },
  };
}

/** Builds events from the stored state of an object, whose messages publish the state again on other topics. */
export async function buildStateEvents(
  building: BuildingView,
  { id, kind, site, source }: PublishedObject,
  now: string,
): Promise<readonly Event[]> {
  const subject = eventSubject(kind === "site-status" ? "site" : kind, site, id);
  const build = <K extends EventKind>(type: K, data: EventData[K], time = now): Event =>
    makeEvent({ type, source: sourceUri(source), subject, siteId: site, time, data, facts: ["moved", time] });
  if (kind === "alarm") {
    const view = await building.findAlarm(source, id);
    if (view === undefined || view.state === "vanished") return [];
    const fact = { alarm: view.alarm, episode: view.episode, late: false, behindGateway: null };
    if (view.state === "out-of-scope") return [build("alarm-out-of-scope", fact)];
    if (view.state === "resolved") return [build("alarm-resolved", fact)];
    return [build("alarm-raised", { ...fact, initial: true }, view.alarm.triggeredAt)];
  }
  if (kind === "site-status") {
    const view = await building.findSiteStatus(source, id);
    if (view === undefined) return [];
    const { source: _source, ...fact } = view;
    return [build("site-status-changed", fact)];
  }
  if (kind !== "tag") {
    const object = await building.findObject(kind, source, id);
    return object === undefined ? [] : [build(`${kind}-added`, { [kind]: object } as never)];
  }
  const tag = await building.findObject("tag", source, id);
  if (tag === undefined) return [];
  const events = [build("tag-added", { tag })];
  const systems = (await building.systemsOf(source, id)).map((system) => {
    return { id: system.id, code: system.code, displayName: system.displayName };
  });
  if (systems.length > 0) events.push(build("tag-systems-changed", { tag, systems, before: [] }));
  const view = await building.findValue(source, id);
  if (view === undefined) return events;
  const { source: _source, siteId: _siteId, ...reading } = view;
  const data = { ...reading, latencyMs: 0, behindGateway: null };
  return [...events, build("tag-value", data, reading.time)];
}
