import { Retryable } from "../../core/errors/errors.ts";
import {
  type Event,
  featureSubject,
  makeEvent,
  SERVICE_SUBJECT,
  sourceUri,
  subjectOf,
} from "../../core/model/event.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { Change, DocumentChange } from "../store/store.ts";
import { type StoredUnavailability, syncSet } from "./snapshot.ts";
import type { SyncState } from "./sync-state.ts";

/**
 * Emits `source-unavailable` once when the service, one feature, or one site outside the token's scope becomes unavailable, and
 * `source-available` once when it is back. The state is stored, so a restart in between repeats neither.
 */
export interface Availability {
  isDown(): boolean;
  down(reason: string): Promise<void>;
  /** Says that the service is back; for when no job has a commit to say it with. */
  up(): Promise<void>;
  featureDown(job: string, reason: string): Promise<void>;
  featureUp(job: string): Promise<void>;
  /** Sites reported as out of the token's scope, and since when, UTC. */
  sitesDown(): ReadonlyMap<number, string>;
  /** `since` is when the loss was noticed, UTC. */
  siteDown(siteId: number, since: string, reason: string): Promise<void>;
  /** `known` is what is remembered of the token with it: a restart must not take an earlier loss for a new one. */
  siteUp(siteId: number, known: readonly DocumentChange[]): Promise<void>;
  /** The site is gone for good; nothing is emitted. */
  siteGone(siteId: number): Promise<void>;
  /**
   * Commits what a job found, with the good news about its feature in front where it is due. While the service is
   * away the picture stands still: only the pass that compares everything, `returning`, commits, and says first that
   * the service is back; what was still under way rejects with `Retryable` and is asked again later.
   */
  commit(job: string, change: Change, returning?: boolean): Promise<void>;
}

export interface AvailabilityOptions {
  /** The configured source's name. */
  readonly source: string;
  readonly holding: SyncState;
  readonly clock: Clock;
}

export function createAvailability({ source, holding, clock }: AvailabilityOptions): Availability {
  const set = syncSet("availability", source);
  const held = () => holding.get<StoredUnavailability>(set);

  const loss = (subject: string, reason: string, since = isoUtc(clock.now()), siteId: number | null = null): Change => {
    const event = makeEvent({
      type: "source-unavailable",
      source: sourceUri(source),
      subject,
      time: since,
      siteId,
      data: { reason, since },
      facts: [since],
    });
    return {
      documents: [{ set, put: [[subject, { since, reason } satisfies StoredUnavailability]] }],
      events: [event],
    };
  };

  const news = (subject: string, siteId: number | null = null): { documents: DocumentChange[]; events: Event[] } => {
    const known = held().get(subject);
    if (known === undefined) return { documents: [], events: [] };
    const event = makeEvent({
      type: "source-available",
      source: sourceUri(source),
      subject,
      time: isoUtc(clock.now()),
      siteId,
      data: { unavailableSince: known.since },
      facts: [known.since],
    });
    return { documents: [{ set, remove: [subject] }], events: [event] };
  };

  return {
    isDown: () => held().has(SERVICE_SUBJECT),
    async down(reason) {
      if (!held().has(SERVICE_SUBJECT)) await holding.commit(loss(SERVICE_SUBJECT, reason));
    },
    async up() {
      await holding.commit(news(SERVICE_SUBJECT));
    },
    async featureDown(job, reason) {
      const subject = featureSubject(job);
      if (!held().has(subject)) await holding.commit(loss(subject, reason));
    },
    async featureUp(job) {
      await holding.commit(news(featureSubject(job)));
    },
    sitesDown() {
      const all = [...held()].map(([subject, { since }]) => [siteOf(subject), since] as const);
      return new Map(all.flatMap(([siteId, since]) => (siteId === null ? [] : [[siteId, since] as const])));
    },
    async siteDown(siteId, since, reason) {
      const subject = siteSubject(siteId);
      if (!held().has(subject)) await holding.commit(loss(subject, reason, since, siteId));
    },
    async siteUp(siteId, known) {
      const { documents, events } = news(siteSubject(siteId), siteId);
      await holding.commit({ documents: [...documents, ...known], events });
    },
    async siteGone(siteId) {
      await holding.commit({ documents: [{ set, remove: [siteSubject(siteId)] }] });
    },
    async commit(job, change, returning = false) {
      if (!returning && held().has(SERVICE_SUBJECT)) {
        throw new Retryable("The service went away meanwhile; nothing is told before it is back.");
      }
      const first = [...(returning ? [news(SERVICE_SUBJECT)] : []), news(featureSubject(job))];
      await holding.commit({
        ...change,
        documents: [...first.flatMap((one) => one.documents), ...(change.documents ?? [])],
        events: [...first.flatMap((one) => one.events), ...(change.events ?? [])],
      });
    },
  };
}

function siteSubject(siteId: number): string {
  return subjectOf("site", null, String(siteId));
}

function siteOf(subject: string): number | null {
  const [, id] = /^site\/(\d+)$/.exec(subject) ?? [];
  return id === undefined ? null : Number(id);
}
