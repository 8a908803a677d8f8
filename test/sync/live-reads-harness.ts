import { rmSync } from "node:fs";
import { onTestFinished } from "vitest";
import type { Site, Tag } from "#src/core/model/building.ts";
import { OrderlyStop } from "#src/core/runtime/lifecycle.ts";
import { createLog } from "#src/core/runtime/log.ts";
import { createMetrics } from "#src/core/runtime/metrics.ts";
import { createWakeup } from "#src/core/runtime/waiting.ts";
import { resolveRequestContent } from "#src/engine/source/queries.ts";
import { createQuota } from "#src/engine/source/quota/quota.ts";
import type {
  QueueLane,
  QuotaEndpoint,
  QuotaStatus,
  RequestChooser,
  Source,
  TagReadReply,
} from "#src/engine/source/source.ts";
import { openStore } from "#src/engine/store/open.ts";
import { documentSet, type Store } from "#src/engine/store/store.ts";
import type { LoopJob, LoopJobRun } from "#src/engine/sync/job.ts";
import { createHistoryDemand } from "#src/engine/sync/plan/overload.ts";
import { createGroupCommit } from "#src/engine/sync/read/commit-readings.ts";
import { ReadConfig } from "#src/engine/sync/read/config.ts";
import { createLiveReads, type LiveReadOptions } from "#src/engine/sync/read/live-reads.ts";
import type { StoredObject } from "#src/engine/sync/stored-documents.ts";
import { temporaryFolder } from "../real-servers.ts";
import { createVolatileStore, usedBefore } from "../source/quota-harness.ts";
import { createVirtualClock, type VirtualClock } from "../virtual-clock.ts";

export function tagNamed(id: string, more: Partial<Tag> = {}): Tag {
  return { id, displayName: `T${id}`, description: null, unit: "°C", ...more };
}

export async function inventory(
  store: Store,
  source: string,
  tags: readonly Tag[],
  siteId = 1,
  siteMissingSince: string | null = null,
): Promise<void> {
  const listedObject = <T>(value: T, of: number | null, missingSince: string | null = null): StoredObject<T> => ({
    value,
    siteId: of,
    since: "2026-01-01T00:00:00.000Z",
    missingSince,
  });
  const site: Site = { id: siteId, displayName: "Site" };
  await store.commit({
    documents: [
      { set: documentSet("site", source), put: [[String(siteId), listedObject(site, null, siteMissingSince)]] },
      { set: documentSet("tag", source), put: tags.map((tag) => [tag.id, listedObject(tag, siteId)] as const) },
    ],
  });
}

export function testQuota(clock: VirtualClock, perMinute = 20) {
  const requestCounts: Record<QueueLane, number> = { write: 0, "on-demand": 0, live: 0, history: 0, spare: 0 };
  const store = usedBefore(createVolatileStore(), "trial");
  const quota = createQuota({ source: "trial", clock, store, perMinute });
  const quotaStarted = quota.start();
  return {
    sent: requestCounts,
    started: quotaStarted,
    status: (): QuotaStatus => quota.status(),
    pause: (ms: number) => quota.pauseRequests(ms, "everything"),
    async run<T extends object, R>(
      lane: QueueLane,
      endpoint: QuotaEndpoint,
      requests: T | RequestChooser<T>,
      signal: AbortSignal,
      respond: (chosenContent: T) => Promise<R>,
    ): Promise<R> {
      const { chosenContent, onSlotOffered } = resolveRequestContent(requests, (each) => each);
      const task = () => {
        requestCounts[lane]++;
        return respond(chosenContent());
      };
      return quota.run(lane, endpoint, task, signal, onSlotOffered);
    },
  };
}

export async function runFollower(clock: VirtualClock, follower: LoopJob, ms: number): Promise<unknown> {
  const { drain, ended } = startFollower(follower);
  const endMs = clock.monotonic() + ms;
  while (!ended() && clock.monotonic() < endMs) await clock.advance(Math.min(1_000, endMs - clock.monotonic()));
  return drain(clock);
}

/** Runs a follower until it sends no request for 10 seconds or fails; returns what it threw, or null. */
export async function runUntilIdle(clock: VirtualClock, follower: LoopJob, requests: () => number): Promise<unknown> {
  const { drain, ended } = startFollower(follower);
  let requestsBefore = requests();
  for (let quietMs = 0; !ended() && quietMs < 10_000; quietMs += 1_000) {
    await clock.advance(1_000);
    if (requests() !== requestsBefore) quietMs = -1_000;
    requestsBefore = requests();
  }
  return drain(clock);
}

export function startFollower(follower: LoopJob, onSuccess = () => {}, more: Pick<LoopJobRun, "afterOutage"> = {}) {
  const draining = new AbortController();
  const forced = new AbortController();
  let hasEnded = false;
  let failure: unknown = null;
  const followEnd = follower
    .follow({ draining: draining.signal, forced: forced.signal, reportSuccess: onSuccess, ...more })
    .catch((error: unknown) => {
      failure = error;
    })
    .finally(() => {
      hasEnded = true;
    });
  return {
    ended: () => hasEnded,
    async drain(clock: VirtualClock): Promise<unknown> {
      draining.abort(new OrderlyStop());
      while (!hasEnded) await clock.advance(100);
      await followEnd;
      return failure;
    },
    async kill(clock: VirtualClock): Promise<void> {
      forced.abort(new OrderlyStop());
      while (!hasEnded) await clock.advance(100);
      await followEnd;
    },
  };
}

/** A source with the given methods; any other one throws. */
export function partialSource(parts: Partial<Source>): Source {
  return new Proxy({ name: "trial", ...parts } as Source, {
    get(target, name, receiver) {
      const member: unknown = Reflect.get(target, name, receiver);
      if (member === undefined && typeof name === "string" && name !== "then")
        throw new Error(`The test did not expect source.${name}.`);
      return member;
    },
  });
}

/** A source whose reads wait for a slot of the quota and then get the reply of `answer`. */
export function readingSource(
  quota: ReturnType<typeof testQuota>,
  respond: (group: readonly string[], signal: AbortSignal) => Promise<TagReadReply>,
): Source {
  return partialSource({
    quota: quota.status,
    read: (chosen, lane, signal) => quota.run(lane, "read", chosen, signal, (group) => respond(group, signal)),
  });
}

export function msClock(startMs: number, ticks = 2): VirtualClock {
  const virtual = createVirtualClock(startMs, { ticks });
  return { ...virtual, now: () => Math.floor(virtual.now()) };
}

export async function openClockAndStore(
  startMs: number,
): Promise<{ readonly clock: VirtualClock; readonly store: Store }> {
  const clock = msClock(startMs);
  const folder = temporaryFolder();
  const store = await openStore({ folder, clock });
  await store.outbox.register("all", "beginning");
  onTestFinished(async () => {
    await store.close();
    rmSync(folder, { recursive: true });
  });
  return { clock, store };
}

type ReadOptions = Pick<LiveReadOptions, "source" | "store" | "clock"> & Partial<LiveReadOptions>;

export function testReads(classes: unknown, { store, clock, ...more }: ReadOptions) {
  return createLiveReads({
    store,
    clock,
    log: createLog({ level: "silent" }),
    metrics: createMetrics(),
    historyDemand: createHistoryDemand(),
    readClasses: ReadConfig.parse(classes),
    groupCommit: createGroupCommit({ store, clock, sourceCount: 1 }),
    scope: {
      ...{ sees: () => true, hasAbility: () => true, explain: async () => "unexplained" },
      ...{ changes: createWakeup(), respondedAtMs: () => clock.monotonic() },
    },
    ...more,
  });
}
