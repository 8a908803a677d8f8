import type { AlarmView, BuildingView } from "../../core/connector.ts";
import { type Event, type EventKind, eventSubject, makeEvent, sourceUri } from "../../core/model/event.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import type { Log } from "../../core/runtime/log.ts";
import type { DocumentChange, Store } from "../store/store.ts";

/** Parts of the stored state in the order of sending: a site before its gateways. */
const SNAPSHOT_KINDS_IN_ORDER = [
  ...(["site", "site-status", "gateway", "host", "system"] as const),
  ...(["tag", "tag-systems", "alarm", "value"] as const),
] as const;
type SnapshotObjectKind = (typeof SNAPSHOT_KINDS_IN_ORDER)[number];

interface SnapshotEvent {
  readonly key: string;
  readonly event: Event;
}

interface SnapshotProgress {
  readonly askedAt: string;
  readonly part: SnapshotObjectKind;
  readonly after: string;
  readonly sent: number;
}

const SNAPSHOT_SET = "snapshot";
const MAX_COMPLETE_LISTS_WAIT_MS = 10 * 60_000;

/** Builds the request for a snapshot of the stored state; a running snapshot starts again. */
export function buildSnapshotRequest(sink: string, askedAt: string): DocumentChange {
  return { set: SNAPSHOT_SET, put: [[sink, { askedAt, part: "site", after: "", sent: 0 } satisfies SnapshotProgress]] };
}

/** Sends the stored state to one sink, in a fixed order and through the sink's filter; continues after a restart. */
export function createStateSnapshot(options: {
  readonly sink: string;
  readonly store: Pick<Store, "document" | "changes" | "commit">;
  readonly building: BuildingView;
  readonly passesFilter: (event: Event) => boolean;
  readonly clock: Pick<Clock, "now">;
  readonly log: Log;
}) {
  const { sink, store, building, passesFilter, clock, log } = options;
  /** Remaining events of a snapshot part. They are read once, because a page of 100 tags must not read 50,000 again. */
  let remainingEvents: { readonly key: string; readonly events: readonly SnapshotEvent[] } | null = null;
  let isWaitingForLists = false;
  /** Version of the store at which no snapshot was requested; while the version is the same, no query is necessary. */
  let versionWithoutRequest: number | null = null;
  let offeredPage: { readonly snapshot: SnapshotProgress; readonly page: readonly SnapshotEvent[] } | null = null;

  async function readRemainingEvents(snapshot: SnapshotProgress): Promise<readonly SnapshotEvent[]> {
    const key = `${snapshot.askedAt} ${snapshot.part}`;
    if (remainingEvents?.key !== key) {
      const events = (await buildSnapshotEvents(building, snapshot.part, snapshot.askedAt))
        .filter(passesFilter)
        .map((event) => ({ key: `${event.source} ${event.subject}`, event }))
        .sort((a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : 0));
      remainingEvents = { key, events };
    }
    return remainingEvents.events.filter(({ key }) => key > snapshot.after);
  }

  /** True if a snapshot may begin. It waits for complete lists: at the first start, no list has been fetched yet. */
  async function maySnapshotBegin({ after, askedAt, part }: SnapshotProgress): Promise<boolean> {
    if (part !== SNAPSHOT_KINDS_IN_ORDER[0] || after !== "") return true;
    return clock.now() - Date.parse(askedAt) > MAX_COMPLETE_LISTS_WAIT_MS || (await building.isComplete());
  }

  const toDocument = (snapshot: SnapshotProgress): DocumentChange => ({ set: SNAPSHOT_SET, put: [[sink, snapshot]] });

  return {
    /** Returns the next events; none without a snapshot, at its end, or while it waits for complete lists. */
    async nextEvents(limit: number): Promise<readonly Event[]> {
      offeredPage = null;
      isWaitingForLists = false;
      const storeVersion = await store.changes();
      if (storeVersion === versionWithoutRequest) return [];
      for (;;) {
        const snapshotProgress = await store.document<SnapshotProgress>(SNAPSHOT_SET, sink);
        if (snapshotProgress === undefined) {
          versionWithoutRequest = storeVersion;
          remainingEvents = null;
          return [];
        }
        isWaitingForLists = !(await maySnapshotBegin(snapshotProgress));
        if (isWaitingForLists) return [];
        const snapshotPage = (await readRemainingEvents(snapshotProgress)).slice(0, limit);
        if (snapshotPage.length > 0) {
          offeredPage = { snapshot: snapshotProgress, page: snapshotPage };
          return snapshotPage.map(({ event }) => event);
        }
        const nextPart = SNAPSHOT_KINDS_IN_ORDER[SNAPSHOT_KINDS_IN_ORDER.indexOf(snapshotProgress.part) + 1];
        if (nextPart === undefined) {
          log.info({ sink, events: snapshotProgress.sent }, "the snapshot was sent completely to the sink");
          await store.commit({ documents: [{ set: SNAPSHOT_SET, remove: [sink] }] });
        } else await store.commit({ documents: [toDocument({ ...snapshotProgress, part: nextPart, after: "" })] });
      }
    },
    isWaitingForLists: () => isWaitingForLists,
    allowsUrgentEvents: () => ["tag", "tag-systems", "value"].includes(offeredPage?.snapshot.part ?? ""),
    /** Records that the sink has the first `count` events of the last page, and stores the sink's state changes. */
    async settleEvents(count: number, documents: readonly DocumentChange[]): Promise<void> {
      const lastEvent = offeredPage?.page[count - 1];
      if (offeredPage === null || lastEvent === undefined) return;
      const { snapshot } = offeredPage;
      const storedProgress = await store.document<SnapshotProgress>(SNAPSHOT_SET, sink);
      // A snapshot that was requested meanwhile starts at its beginning.
      const isSameSnapshot = storedProgress?.askedAt === snapshot.askedAt;
      const progressDocuments = isSameSnapshot
        ? [toDocument({ ...snapshot, after: lastEvent.key, sent: snapshot.sent + count })]
        : [];
      await store.commit({ documents: [...progressDocuments, ...documents] });
    },
  };
}

/** Builds the snapshot events of one part of the stored state. `askedAt` keeps their ids equal in every attempt. */
async function buildSnapshotEvents(
  building: BuildingView,
  part: SnapshotObjectKind,
  askedAt: string,
): Promise<readonly Event[]> {
  if (part === "alarm") return (await building.activeAlarms()).map((alarm) => buildAlarmRaisedEvent(alarm, askedAt));
  if (part === "tag-systems") {
    return (await building.tagSystems()).map(({ source, siteId, tag, systems }) => {
      const data = { tag, systems, before: [] };
      const subject = eventSubject("tag", siteId, tag.id);
      return makeSnapshotEvent({ type: "tag-systems-changed", source, subject, siteId, time: askedAt, data }, askedAt);
    });
  }
  if (part === "site-status") {
    return (await building.siteStatuses()).map(({ source, ...data }) => {
      const subject = eventSubject("site", null, String(data.site.id));
      const eventFields = { source, subject, siteId: data.site.id, time: data.since, data };
      return makeSnapshotEvent({ type: "site-status-changed", ...eventFields }, askedAt);
    });
  }
  if (part === "value") {
    return (await building.values()).map(({ source, siteId, ...reading }) => {
      const { tag, time } = reading;
      const data = { ...reading, latencyMs: 0, behindGateway: null };
      const subject = eventSubject("tag", siteId, tag.id);
      return makeSnapshotEvent({ type: "tag-value", source, subject, siteId, time, data }, askedAt);
    });
  }
  const presentObjects = (await building.inventory(part)).filter(({ isListed }) => isListed);
  return presentObjects.map(({ source, siteId: objectSiteId, value }) => {
    const siteId = part === "site" ? value.id : objectSiteId;
    const subject = eventSubject(part, objectSiteId, String(value.id));
    const data = { [part]: value } as never;
    return makeSnapshotEvent({ type: `${part}-added`, source, subject, siteId, time: askedAt, data }, askedAt);
  });
}

function buildAlarmRaisedEvent({ source, alarm, episode }: AlarmView, requestedAt: string): Event {
  const siteId = alarm.site.id;
  const subject = eventSubject("alarm", siteId, alarm.id);
  const { priority } = alarm.trigger;
  const data = { alarm, episode, late: false, behindGateway: null, initial: true };
  const time = alarm.triggeredAt;
  return makeSnapshotEvent({ type: "alarm-raised", source, subject, siteId, priority, time, data }, requestedAt);
}

function makeSnapshotEvent<K extends EventKind>(
  fields: Omit<Parameters<typeof makeEvent<K>>[0], "facts">,
  requestedAt: string,
) {
  const event = makeEvent({ ...fields, source: sourceUri(fields.source), facts: ["snapshot", requestedAt] });
  return { ...event, snapshot: true } as Event;
}
