import { createHash } from "node:crypto";
import { EVENTS_ACCEPTED, type Sink } from "#src/core/connector.ts";
import { ConfigError, Retryable, Throttled } from "#src/core/errors/errors.ts";
import type { TokenInfo } from "#src/core/model/building.ts";
import { createClockCheck } from "#src/core/runtime/clock-check.ts";
import { OrderlyStop } from "#src/core/runtime/lifecycle.ts";
import { createLog } from "#src/core/runtime/log.ts";
import { createMetrics } from "#src/core/runtime/metrics.ts";
import { DeliveryConfig } from "#src/engine/delivery/config.ts";
import { createEventDispatcher } from "#src/engine/delivery/dispatcher.ts";
import type { RequestChooser } from "#src/engine/source/source.ts";
import { documentSet, type Store } from "#src/engine/store/store.ts";
import { SyncConfig } from "#src/engine/sync/config.ts";
import { createCronTicker } from "#src/engine/sync/cron-schedule.ts";
import { ReadConfig } from "#src/engine/sync/read/config.ts";
import { openSync } from "#src/engine/sync/sync.ts";
import { createBuildingView } from "#src/engine/views/building-view.ts";
import type { CampaignResult } from "../campaign/campaign.ts";
import { withSeededMathRandom } from "../campaign/seeded-chance.ts";
import { seededRandom } from "../commands/seeded-random.ts";
import { createVirtualClock } from "../virtual-clock.ts";
import { inventory, partialSource, tagNamed, testQuota, testReads } from "./live-reads-harness.ts";
import { createMemoryStore } from "./memory-store.ts";
import { createStaleJudge, SLOT_MS } from "./stale-judge.ts";

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const START_MS = Date.UTC(2026, 5, 1);
const FAULTS_MS = 10 * 60 * MINUTE;
/** Longer than every back-off of a refused token, 8 minutes, and than two of the longest intervals. */
const REST_MS = 45 * MINUTE;
const READ_DEADLINE_MS = 30 * SECOND;
const ABILITIES = ["read:sites", "read:tags"];
const INTERVALS = ["15s", "30s", "1m", "1m", "2m", "5m", "5m", "15m"];
/** Demands as shares of the quota; a seed with 1.3 is overloaded. */
const QUOTA_LOADS = [0.05, 0.05, 0.1, 0.1, 0.2, 0.2, 0.4, 1.3];
const SYNC_CONFIG = SyncConfig.parse({
  schedules: {
    ...{ token: "0 * * * *", sites: false, alarms: false, resolved_sweep: false },
    ...{ gateways: false, hosts: false, systems: false, tags: false },
  },
  spread: "0s",
});

const SERVICE_FAILURES = {
  "refuses connections": () => new Retryable("ECONNREFUSED"),
  "answers 500": () => new Retryable("500"),
  "is in maintenance": () => new Throttled("503", 30_000, { scope: "everything" }),
  "rejects the token": () => new ConfigError("401", { reason: "unauthenticated" }),
  "never answers": () => new Retryable("The service did not answer in time."),
} as const;

type FaultName =
  | "the token loses a site"
  | "the token loses read:tags"
  | "a gateway is offline"
  | "the service is dead"
  | "only reads fail"
  | "replies are slow"
  | "a tag is refused"
  | "a tag is left out"
  | "the quota is used up"
  | "history takes every slot"
  | "the sink is down";

/** Live reads of one building in virtual time, with random faults. The model sink is judged every minute. */
export const campaign = (seed: number): Promise<CampaignResult> => withSeededMathRandom(seed, () => play(seed));

async function play(seed: number): Promise<CampaignResult> {
  const random = seededRandom(seed);
  const { below, chance, pick } = random;
  /** Numbers of their own, so that deliveries do not change the faults of a seed. */
  const sinkRandom = seededRandom(seed);
  let hasCommitted = false;
  const virtual = createVirtualClock(START_MS, {
    /** After a transaction the next one needs a turn of the event loop before time moves on. */
    isWaiting() {
      const isTickNeeded = hasCommitted;
      hasCommitted = false;
      return isTickNeeded;
    },
  });
  const clock = { ...virtual, now: () => Math.floor(virtual.now()) };
  const siteIds = Array.from({ length: 1 + below(4) }, (_, n) => n + 1);
  const tagIds = Array.from({ length: 20 + below(381) }, (_, n) => String(1_001 + n));
  const siteOf = (id: string) => siteIds[Number(id) % siteIds.length] as number;
  const load = pick(QUOTA_LOADS);
  const log = createLog({ level: "silent" });
  const memory = createMemoryStore(clock.now);
  const digest = createHash("sha256");
  const quota = testQuota(clock);
  const faults = new Map<FaultName, number>();
  const counts = new Map<string, number>();
  const story: string[] = [];
  const lost = { sites: new Set<number>(), abilities: new Set<string>() };
  const offlineSites = new Set<number>();
  const refusedTags = new Set<string>();
  const everRefusedTags = new Set<string>();
  const leftOutTags = new Set<string>();
  const death = { name: "refuses connections" as keyof typeof SERVICE_FAILURES, sinceMs: 0 };
  let slowMs = 0;
  let lastToken = token();
  let requests = 0;
  let classes = ReadConfig.parse([]);
  const judge = createStaleJudge(clock, {
    knownSites: () => new Set(lastToken.sites.map(({ id }) => id)),
    knownAbilities: () => lastToken.abilities,
    siteOf,
    isGatewayOffline: (siteId) => offlineSites.has(siteId),
    wasRefused: (id) => everRefusedTags.has(id),
    deadSinceMs: () => (faults.has("the service is dead") || faults.has("only reads fail") ? death.sinceMs : null),
  });
  const logLine = (text: string) => story.push(`${Math.round(clock.monotonic() / SECOND)} s: ${text}`);
  function begin(name: string, text = name): void {
    logLine(text);
    counts.set(name, (counts.get(name) ?? 0) + 1);
  }

  function token(): TokenInfo {
    const sites = siteIds.filter((id) => !lost.sites.has(id)).map((id) => ({ id, displayName: `Site ${id}` }));
    const abilities = ABILITIES.filter((ability) => !lost.abilities.has(ability));
    return { user: { id: 1, name: "", email: "" }, name: "trial", expiresAt: null, sites, abilities };
  }

  async function fail(signal: AbortSignal, latencyMs = 0): Promise<never> {
    judge.recordFault("late");
    if (death.name === "never answers") await clock.sleep(Math.max(0, READ_DEADLINE_MS - latencyMs), signal);
    judge.recordFault("failed");
    throw SERVICE_FAILURES[death.name]();
  }

  async function respond(group: readonly string[], signal: AbortSignal) {
    requests += 1;
    const latencyMs = 40 + below(200) + slowMs;
    // A first slow reply looks like a missing reply.
    if (slowMs > 0) judge.recordFault("late");
    await clock.sleep(latencyMs, signal);
    if (faults.has("the service is dead") || faults.has("only reads fail")) await fail(signal, latencyMs);
    if (faults.has("the quota is used up")) throw new Throttled("429", 20_000);
    if (latencyMs > READ_DEADLINE_MS) throw new Retryable("The service did not answer in time.");
    const isForbidden = (id: string) => refusedTags.has(id) || lost.sites.has(siteOf(id));
    if (lost.abilities.has("read:tags") || group.some(isForbidden))
      throw new ConfigError("403", { reason: "forbidden" });
    const readings = group
      .filter((id) => !leftOutTags.has(id))
      .map((id) => ({ ...tagNamed(id), value: offlineSites.has(siteOf(id)) ? null : below(3) }));
    if (readings.length < group.length) judge.recordFault("late");
    judge.replied(
      group,
      readings.map(({ id }) => id),
    );
    return { readings, receivedAtMs: clock.now(), latencyMs };
  }

  const source = partialSource({
    ...{ sites: unlisted, tags: unlisted, gateways: unlisted, hosts: unlisted, systems: unlisted },
    quota: quota.status,
    read: (chosen, lane, signal) =>
      quota.run(lane, "read", chosen, signal, async (group) => {
        try {
          return await respond(group, signal);
        } catch (error) {
          if (!(error instanceof OrderlyStop)) judge.recordFault("failed");
          throw error;
        }
      }),
    async me(signal) {
      await clock.sleep(50, signal);
      if (faults.has("the service is dead")) await fail(signal);
      lastToken = token();
      return lastToken;
    },
    health: async () => ({ status: "ok", time: null }),
  });

  const sink: Sink = {
    maxBatch: 100,
    open: sinkReply,
    async write(batch, signal) {
      await sinkReply(signal);
      judge.delivered(batch);
      return EVENTS_ACCEPTED;
    },
    async close() {},
  };

  async function sinkReply(signal: AbortSignal): Promise<void> {
    await clock.sleep(10 + sinkRandom.below(200), signal);
    if (faults.has("the sink is down")) throw new Retryable("ECONNREFUSED");
  }

  async function startWorker() {
    const workerRun = { isOver: false };
    const store: Store = {
      ...memory,
      async commit(change) {
        if (workerRun.isOver) throw new Retryable("The process has ended.");
        hasCommitted = true;
        judge.committed(change, documentSet("value", "trial"));
        for (const { id } of change.events ?? []) digest.update(id);
        return memory.commit(change);
      },
    };
    const sync = await openSync({
      ...{ source, store, clock, log, random, metrics: createMetrics(), config: SYNC_CONFIG },
      ticker: createCronTicker(clock, createClockCheck({ clock, log })),
    });
    const reads = testReads([], {
      ...{
        source,
        store: sync.store,
        clock,
        log,
        readClasses: classes,
        scope: sync.scope,
        isServiceDown: sync.isServiceDown,
      },
      offlineGatewayOf: (siteId) => (offlineSites.has(siteId) ? "7" : null),
    });
    const service = sync.createService([reads], reads);
    const { outbox } = memory;
    const dispatcher = createEventDispatcher({
      sinks: [{ name: "model", connector: "model", sink, delivery: DeliveryConfig.parse({ from: "beginning" }) }],
      ...{ store, outbox, clock, log, random: sinkRandom, metrics: createMetrics(), checkEveryMs: MINUTE },
      building: createBuildingView(store, new Map([["trial", "UTC"]])),
    });
    judge.workerStarted();
    await dispatcher.start(new AbortController().signal);
    await service.start(new AbortController().signal);
    return {
      reads,
      async kill() {
        workerRun.isOver = true;
        judge.workerKilled();
        const stopped = Promise.all([service.stop(0), dispatcher.stop(0)]);
        await clock.advance(1);
        await stopped;
      },
    };
  }

  function changeClasses(): void {
    for (;;) {
      const names = ["a", "b", "c"].slice(0, 1 + below(3));
      const ids = Map.groupBy(tagIds, () => pick([...names, ...names, ...names, ...(chance(0.1) ? ["none"] : [])]));
      classes = ReadConfig.parse(
        names.map((name) => ({
          ...{ name, select: { ids: ids.get(name) ?? ["none"] }, every: pick(INTERVALS) },
          ...{ on_change: chance(0.3), fresher: chance(0.05), max_silence: pick(["10m", "1h"]) },
        })),
      );
      const classOf = new Map(classes.flatMap((each) => (ids.get(each.name) ?? []).map((id) => [id, each] as const)));
      const demand = [...classOf.values()].reduce((sum, { every }) => sum + SLOT_MS / (20 * every), 0);
      if (demand > 1.5 * load && !classes.every(({ every }) => every >= 15 * MINUTE)) continue;
      logLine(`classes of ${classes.map(({ every }) => every / SECOND).join(", ")} s, demand ${demand.toFixed(2)}`);
      judge.classesChanged(classOf);
      return;
    }
  }

  /** Starts a fault and returns its end. */
  const starts: Readonly<Record<FaultName, () => () => void>> = {
    "the token loses a site": () => moveInto(lost.sites, pick(siteIds)),
    "the token loses read:tags": () => moveInto(lost.abilities, "read:tags"),
    "a gateway is offline": () => moveInto(offlineSites, pick(siteIds)),
    "the service is dead": failService,
    "only reads fail": failService,
    "replies are slow": () => {
      slowMs = (1 + below(32)) * SECOND;
      return () => {
        slowMs = 0;
      };
    },
    "a tag is refused": () => {
      const id = pick(tagIds);
      everRefusedTags.add(id);
      return moveInto(refusedTags, id);
    },
    "a tag is left out": () => moveInto(leftOutTags, pick(tagIds)),
    "the quota is used up": () => () => undefined,
    "history takes every slot": () => {
      const ended = new AbortController();
      void takeSlots(ended.signal);
      return () => ended.abort(new OrderlyStop());
    },
    "the sink is down": () => {
      judge.sinkStopped();
      return judge.sinkReturned;
    },
  };
  const ends = new Map<FaultName, () => void>();

  function failService(): () => void {
    death.name = pick(Object.keys(SERVICE_FAILURES) as (keyof typeof SERVICE_FAILURES)[]);
    death.sinceMs = clock.monotonic();
    logLine(`the service ${death.name}`);
    return () => undefined;
  }

  async function takeSlots(signal: AbortSignal): Promise<void> {
    while (!signal.aborted)
      await quota
        .run("history", "history", leaveOwnSlots, signal, () => clock.sleep(300, signal))
        .catch(() => undefined);
  }

  function endFaults(nowMs: number): void {
    for (const [name, endMs] of faults) {
      if (endMs > nowMs) continue;
      faults.delete(name);
      ends.get(name)?.();
      logLine(`over: ${name}`);
    }
  }

  async function advanceClock(ms: number): Promise<void> {
    const untilMs = clock.monotonic() + ms;
    while (clock.monotonic() < untilMs) {
      const nextMs = Math.min(untilMs, clock.monotonic() + MINUTE, ...faults.values());
      await clock.advance(nextMs - clock.monotonic());
      judge.checkValueViews();
      endFaults(clock.monotonic());
    }
  }

  function startFault(): void {
    const name = pick(Object.keys(starts) as FaultName[]);
    if (faults.has(name)) return;
    const forMs = pick([20, 90, 300, 1_200]) * SECOND * (0.5 + random());
    begin(name, `${name}, for ${Math.round(forMs / SECOND)} s`);
    faults.set(name, clock.monotonic() + forMs);
    ends.set(name, starts[name]());
  }

  async function killWorker(): Promise<void> {
    begin("the worker is killed");
    await worker.kill();
    await advanceClock(pick([0, 1, 30, 600]) * SECOND);
    logLine("the worker starts");
    worker = await startWorker();
  }

  function stepClock(): void {
    const byMs = Math.round(pick([-1, 1]) * SECOND * 3_600 ** random());
    begin("the wall clock is set", `the wall clock is set by ${byMs / SECOND} s`);
    clock.stepWall(byMs);
  }

  for (const siteId of siteIds) {
    const tags = tagIds.filter((id) => siteOf(id) === siteId).map((id) => tagNamed(id));
    await inventory(memory, "trial", tags, siteId);
  }
  changeClasses();
  let worker = await startWorker();
  await advanceClock(5 * MINUTE);
  while (clock.monotonic() < FAULTS_MS) {
    if (chance(0.8)) startFault();
    else if (chance(0.4)) await killWorker();
    else if (chance(0.5)) stepClock();
    else {
      begin("the classes change");
      changeClasses();
      worker.reads.changeClasses(classes);
    }
    await advanceClock(below(10 * MINUTE));
  }
  endFaults(Number.POSITIVE_INFINITY);
  await advanceClock(REST_MS);
  judge.end((id) => !everRefusedTags.has(id));
  await worker.kill();
  return {
    ...{ problems: judge.problems, story, requests, simulatedMs: clock.monotonic() },
    counts: { ...Object.fromEntries(counts), ...judge.counts() },
    digest: digest.update(story.join()).digest("hex").slice(0, 12),
  };
}

function unlisted(): never {
  throw new Error("The campaign reads no lists.");
}

function moveInto<T>(set: Set<T>, item: T): () => void {
  set.add(item);
  return () => void set.delete(item);
}

/** History that leaves only the slots of live reads. */
const leaveOwnSlots: RequestChooser<readonly string[]> = ({ isLaneOverdue }) =>
  isLaneOverdue ? { declineForMs: SLOT_MS } : { content: ["past"] };
