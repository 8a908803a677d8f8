import type { Site, Tag } from "#src/building.ts";
import { createMetrics } from "#src/metrics.ts";
import type { Lane, QuotaStatus, Source } from "#src/source/source.ts";
import { documentSet, type Store } from "#src/store/store.ts";
import type { Held } from "#src/sync/snapshot.ts";
import type { VirtualClock } from "../virtual-clock.ts";

/** What tests of the live reads and the history share: tags in the store, and a quota that lets one out per slot. */

export const SLOT_MS = 3_000;

export function tagNamed(id: string, more: Partial<Tag> = {}): Tag {
  return { id, displayName: `T${id}`, description: null, unit: "°C", ...more };
}

/** Puts tags of a site into the store, as the poll of inventories would; the site may be missing in the listings. */
export async function inventory(
  store: Store,
  source: string,
  tags: readonly Tag[],
  siteId = 1,
  siteMissingSince: string | null = null,
): Promise<void> {
  const held = <T>(value: T, of: number | null, missingSince: string | null = null): Held<T> => ({
    value,
    siteId: of,
    since: "2026-01-01T00:00:00.000Z",
    missingSince,
  });
  const site: Site = { id: siteId, displayName: "Site" };
  await store.commit({
    documents: [
      { set: documentSet("site", source), put: [[String(siteId), held(site, null, siteMissingSince)]] },
      { set: documentSet("tag", source), put: tags.map((tag) => [tag.id, held(tag, siteId)] as const) },
    ],
  });
}

/** One request per slot, lanes in order, as the real quota paces them. */
export function createTrialQuota(clock: VirtualClock) {
  const waiting: Record<Lane, number> = { write: 0, "on-demand": 0, live: 0, history: 0 };
  const sent: Record<Lane, number> = { write: 0, "on-demand": 0, live: 0, history: 0 };
  const queue: { lane: Lane; go: () => void }[] = [];
  const order: readonly Lane[] = ["write", "on-demand", "live", "history"];
  let freeAtMs = 0;
  let pumping = false;

  const pump = async () => {
    if (pumping) return;
    pumping = true;
    while (queue.length > 0) {
      if (clock.monotonic() < freeAtMs) await clock.sleep(freeAtMs - clock.monotonic());
      queue.sort((a, b) => order.indexOf(a.lane) - order.indexOf(b.lane));
      freeAtMs = clock.monotonic() + SLOT_MS;
      const next = queue.shift();
      if (next === undefined) break;
      waiting[next.lane]--;
      sent[next.lane]++;
      next.go();
    }
    pumping = false;
  };
  return {
    sent,
    turn(lane: Lane, signal: AbortSignal): Promise<void> {
      return new Promise((resolve, reject) => {
        signal.addEventListener("abort", () => reject(signal.reason), { once: true });
        waiting[lane]++;
        queue.push({ lane, go: resolve });
        void pump();
      });
    },
    status: (): QuotaStatus => ({
      heldUntilMs: null,
      buckets: [
        {
          name: "tags",
          perMinute: 20,
          pacedPerMinute: 20,
          lastingPerMinute: 20,
          used: 0,
          waiting: { ...waiting },
          heldUntilMs: null,
          nextSlotInMs: Math.max(0, freeAtMs - clock.monotonic()),
          throttled: 0,
          foreign: null,
        },
      ],
    }),
  };
}

/** A source of which only what the test gives may be called. */
export function trialSource(parts: Partial<Source>): Source {
  return new Proxy({ name: "trial", ...parts } as Source, {
    get(target, name, receiver) {
      const member: unknown = Reflect.get(target, name, receiver);
      if (member === undefined && typeof name === "string" && name !== "then") {
        throw new Error(`The test did not expect source.${name}.`);
      }
      return member;
    },
  });
}

export const trialMetrics = createMetrics;
