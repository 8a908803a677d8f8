import { Retryable } from "../../core/errors/errors.ts";
import { eventSubject, featureSubject, makeEvent, SERVICE_SUBJECT, sourceUri } from "../../core/model/event.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { DocumentChange, StoreChange } from "../store/store.ts";
import { type StoredUnavailability, syncSet } from "./stored-documents.ts";
import type { SyncState } from "./sync-state.ts";

export type ServiceAvailability = ReturnType<typeof createServiceAvailability>;

/** Emits `source-unavailable` and `source-available` once per loss of the service, a feature or a site. */
export function createServiceAvailability(source: string, syncState: SyncState, clock: Clock) {
  const documentSetName = syncSet("availability", source);
  const unavailableBySubject = () => syncState.get<StoredUnavailability>(documentSetName);

  async function emitOutage(subject: string, reason: string, since: string, siteId: number | null): Promise<void> {
    if (unavailableBySubject().has(subject)) return;
    const storedUnavailability: StoredUnavailability = { since, reason };
    const eventBase = { source: sourceUri(source), subject, siteId, time: since };
    const event = makeEvent({ ...eventBase, type: "source-unavailable", data: { reason, since }, facts: [since] });
    await syncState.commit({
      documents: [{ set: documentSetName, put: [[subject, storedUnavailability]] }],
      events: [event],
    });
  }

  function buildRecovery(subject: string, siteId: number | null = null) {
    const storedUnavailability = unavailableBySubject().get(subject);
    if (storedUnavailability === undefined) return { documents: [], events: [] };
    const { since } = storedUnavailability;
    const eventBase = { source: sourceUri(source), subject, siteId, time: isoUtc(clock.now()) };
    const data = { unavailableSince: since };
    const event = makeEvent({ ...eventBase, type: "source-available", data, facts: [since] });
    return { documents: [{ set: documentSetName, remove: [subject] }], events: [event] };
  }

  const isDown = () => unavailableBySubject().has(SERVICE_SUBJECT);
  return {
    isDown,
    serviceDown: (reason: string) => emitOutage(SERVICE_SUBJECT, reason, isoUtc(clock.now()), null),
    serviceUp: () => syncState.commit(buildRecovery(SERVICE_SUBJECT)),
    featureDown: (job: string, reason: string) => emitOutage(featureSubject(job), reason, isoUtc(clock.now()), null),
    featureUp: (job: string) => syncState.commit(buildRecovery(featureSubject(job))),
    sitesDown(): ReadonlyMap<number, string> {
      const unavailableSites = [...unavailableBySubject()].flatMap(([subject, { since }]) => {
        const [, id] = /^site\/(\d+)$/.exec(subject) ?? [];
        return id === undefined ? [] : [[Number(id), since] as const];
      });
      return new Map(unavailableSites);
    },
    siteDown: (siteId: number, since: string, reason: string) => emitOutage(siteSubject(siteId), reason, since, siteId),
    /** Emits that a site is back. `changes`: documents that make the site visible in the stored token. */
    async siteUp(siteId: number, changes: readonly DocumentChange[]): Promise<void> {
      const { documents, events } = buildRecovery(siteSubject(siteId), siteId);
      await syncState.commit({ documents: [...documents, ...changes], events });
    },
    siteGone: (siteId: number) =>
      syncState.commit({ documents: [{ set: documentSetName, remove: [siteSubject(siteId)] }] }),
    /** Commits a job's result. During an outage, only the poll that ends it (`isRecovery`) may commit. */
    async commit(job: string, change: StoreChange, isRecovery = false): Promise<void> {
      if (!isRecovery && isDown())
        throw new Retryable(
          "The service became unavailable meanwhile; Plenum emits nothing until it is available again.",
        );
      const recoveries = [...(isRecovery ? [buildRecovery(SERVICE_SUBJECT)] : []), buildRecovery(featureSubject(job))];
      await syncState.commit({
        ...change,
        documents: [...recoveries.flatMap(({ documents }) => documents), ...(change.documents ?? [])],
        events: [...recoveries.flatMap(({ events }) => events), ...(change.events ?? [])],
      });
    },
  };
}

function siteSubject(siteId: number): string {
  return eventSubject("site", null, String(siteId));
}
