import type { StoredIncident } from "#connectors/shared/receiver/stored-incident.ts";
import type { Receipt } from "#src/core/connector.ts";
import { asFailure, Retryable } from "#src/core/errors/errors.ts";
import type { Clock } from "#src/core/runtime/clock.ts";
import {
  applySinkReceipt,
  createSinkState,
  type EventBatch,
  retryEventsFromIndex,
  takeBatch,
  type WriteOutcome,
} from "#src/engine/delivery/batches.ts";
import type { Store } from "#src/engine/store/store.ts";
import { withSeededMathRandom } from "../campaign/seeded-chance.ts";
import { seededRandom } from "../commands/seeded-random.ts";
import { contextFor } from "../connectors/context.ts";
import { START } from "../receiver/receiver-harness.ts";
import { createMemoryStore } from "../sync/memory-store.ts";
import { findProblems, type RunOutcome, summarizeIncidents } from "./check-outcome.ts";
import { createEventfulBuilding } from "./eventful-building.ts";
import { createSink, type ReceiverCase } from "./receivers.ts";
import { describeSettings, drawRunSettings } from "./run-settings.ts";

class Kill extends Error {}

const SINK = "people";
const STEPS = 60;
const OLDER_STEPS = 8;
const DEADLINE_MS = 30_000;
const MOST_TRIES = 2_000;

/** Plays alarms of 60 steps on a receiver with kills, lost responses and replays; returns the problems found. */
export const playRandomCrashes = (row: ReceiverCase, seed: number) =>
  withSeededMathRandom(seed, () => playRun(row, seed));

async function playRun(row: ReceiverCase, seed: number) {
  const random = seededRandom(seed);
  const settings = drawRunSettings(random);
  let nowMs = START;
  const clock: Clock = {
    now: () => nowMs,
    monotonic: () => nowMs - START,
    sleep: async (ms) => {
      nowMs += ms;
    },
  };
  const server = await row.start(() => nowMs);
  const store = createMemoryStore(() => nowMs);
  const building = createEventfulBuilding(random, settings, store);
  const killableStore = createKillableStore();
  const openSink = () => createSink(row, server, contextFor(SINK, clock, killableStore.store), settings.options);
  let sink = await openSink();
  let lost = 0;
  let slowMs = settings.slowMs;
  let isCalm = false;
  let deadline = { controller: new AbortController(), untilMs: Number.POSITIVE_INFINITY };

  function createKillableStore() {
    let killIn = Number.POSITIVE_INFINITY;
    let requestsBefore = 0;
    const counts = { kills: 0, unverified: 0 };
    const everStored = new Set<string>();

    async function write(writeNow: () => Promise<void>): Promise<void> {
      const isAfterRequest = server.requests() > requestsBefore;
      requestsBefore = server.requests();
      if (isAfterRequest) nowMs += slowMs;
      if (nowMs > deadline.untilMs) deadline.controller.abort(new Retryable("The sink did not answer in time."));
      killIn -= 1;
      if (killIn >= 0) return writeNow();
      killIn = Number.POSITIVE_INFINITY;
      counts.kills += 1;
      const isDone = random.chance(0.25);
      if (isDone) await writeNow();
      else if (isAfterRequest) counts.unverified += 1;
      throw new Kill("killed");
    }

    return {
      counts,
      everStored,
      killAfter(writes: number) {
        killIn = writes;
      },
      settle: (settlement: Parameters<Store["outbox"]["settle"]>[1]) =>
        write(() => store.outbox.settle(SINK, settlement)),
      store: {
        ...store,
        async commit(change) {
          for (const { put = [] } of change.documents ?? []) for (const [key] of put) everStored.add(key);
          await write(async () => void (await store.commit(change)));
          return { lastPosition: 0, repeated: [] };
        },
      } satisfies Store,
    };
  }

  async function restart(): Promise<void> {
    await sink.close();
    nowMs += 1_000;
    sink = await openSink();
    if (!isCalm && random.chance(0.4)) killableStore.killAfter(random.below(4));
  }

  async function attempt(call: (signal: AbortSignal) => Promise<void>): Promise<boolean> {
    deadline = { controller: new AbortController(), untilMs: nowMs + DEADLINE_MS };
    const { signal } = deadline.controller;
    try {
      await call(signal);
      return true;
    } catch (error) {
      if (error instanceof Kill) await restart();
      else await wait(signal.aborted ? signal.reason : error);
      return false;
    } finally {
      deadline.untilMs = Number.POSITIVE_INFINITY;
    }
  }

  async function wait(error: unknown): Promise<void> {
    const failure = asFailure(error);
    if (failure.kind === "config" || failure.kind === "malformed") throw error;
    nowMs += failure.kind === "throttled" ? (failure.retryAfterMs ?? 30_000) : 5_000;
  }

  async function deliver(maxTries = MOST_TRIES): Promise<void> {
    for (let tries = 0; ; tries += 1) {
      const offer = await store.outbox.next(SINK, settings.batch);
      if (offer.events.length === 0 || tries === maxTries) return;
      if (tries === MOST_TRIES - 1) throw new Error(`${offer.events.length} events are never settled`);
      const isOffered = ({ type }: { readonly type: string }) =>
        !(settings.filtersReturns && type === "gateway-online");
      const isDelivered = await attempt((signal) => deliverBatch(takeBatch(offer, isOffered, settings.batch), signal));
      if (isDelivered || isCalm) continue;
      if (random.chance(0.15)) injectFailure();
      if (random.chance(0.2)) await building.happen(nowMs, true);
    }
  }

  async function deliverBatch(offer: EventBatch, signal: AbortSignal): Promise<void> {
    const { events: batch, lastPosition } = offer;
    const outcome = batch.length === 0 ? null : await writeBatch(offer, signal);
    const settlement =
      outcome === null ? { isRepeat: offer.isRepeat, through: lastPosition, rejected: [] } : outcome.settlement;
    if (settlement !== null) await killableStore.settle(settlement);
    if (outcome?.toRetry != null) throw outcome.toRetry.error;
  }

  async function writeBatch(batch: EventBatch, signal: AbortSignal): Promise<WriteOutcome> {
    const positions = batch.events.map(({ position }) => position);
    const events = batch.events.map(({ event }) => event);
    let receipt: Receipt;
    try {
      const committedAt = batch.events.map((logged) => logged.committedAt);
      receipt = await sink.write(events, signal, undefined, { positions, committedAt, isRedelivery: batch.isRepeat });
    } catch (error) {
      if (error instanceof Kill) throw error;
      return retryEventsFromIndex(batch, 0, error);
    }
    if (receipt.failing !== undefined) nowMs += receipt.failing.retryInMs;
    if (receipt.stateChanges !== undefined) throw new Error("A receiver's sink writes what it remembers by itself.");
    const [refused] = receipt.rejected;
    if (refused !== undefined) problems.add(`refused: ${refused.reason}`);
    return applySinkReceipt(SINK, batch, receipt);
  }

  async function tick(): Promise<boolean> {
    const maxTries = isCalm ? MOST_TRIES : 20;
    for (let tries = 0; tries < maxTries; tries += 1) {
      let inMs = Number.POSITIVE_INFINITY;
      const isDone = await attempt(async (signal) => {
        const ticked = await sink.tick?.(signal);
        inMs = ticked?.tickInMs ?? inMs;
        for (const { reason } of ticked?.refused ?? []) problems.add(`refused: ${reason}`);
      });
      if (!isDone) return false;
      if (inMs >= 5_000) return true;
      nowMs += Math.max(100, inMs);
    }
    return !isCalm;
  }

  function injectFailure(): void {
    if (random.chance(0.6)) killableStore.killAfter(random.below(4));
    if (random.chance(0.25)) {
      const count = settings.storms ? 1 + random.below(3) : 1;
      server.loseResponses(count);
      lost += count;
    }
    if (random.chance(settings.storms ? 0.3 : 0.1)) server.throttle(settings.storms ? 1 + random.below(6) : 1);
  }

  async function requestReplay(): Promise<void> {
    const last = (await store.outbox.latest(1))[0]?.position ?? 0;
    if (random.chance(0.5)) {
      const sinceMs = nowMs - random.pick([60_000, 600_000, 86_400_000]);
      await store.outbox.replay(SINK, new Date(sinceMs).toISOString());
    } else {
      const incidentsAfter = random.below(last + 1);
      await store.outbox.replayBetween(SINK, incidentsAfter, incidentsAfter + 1 + random.below(20));
    }
  }

  async function settleSink(): Promise<void> {
    killableStore.killAfter(Number.POSITIVE_INFINITY);
    slowMs = 0;
    isCalm = true;
    server.loseResponses(0);
    server.throttle(0);
    await deliver();
    for (let turn = 0; turn < 10; turn += 1) {
      nowMs += 60_000;
      if (!(await tick())) throw new Error("the sink does not come to rest");
    }
  }

  async function collectOutcome(): Promise<RunOutcome> {
    const stored = await createSinkState(SINK, store).all<StoredIncident>();
    return {
      ...{ row, settings, building, storedIncidents: stored },
      receiverIncidents: server.incidents(),
      everStored: killableStore.everStored,
      unverifiedOpenings: killableStore.counts.kills + lost,
    };
  }

  async function replayAll(): Promise<readonly string[]> {
    const replayEverything = async () => {
      await store.outbox.replay(SINK, new Date(START).toISOString());
      await deliver();
    };
    await replayEverything();
    await settleSink();
    const requests = server.requests();
    await replayEverything();
    const newRequests = server.requests() - requests;
    return newRequests === 0 ? [] : [`a replay of what was told made ${newRequests} requests`];
  }

  async function replayLater(): Promise<readonly string[]> {
    const incidentsBefore = summarizeIncidents(server.incidents());
    nowMs += 31 * 86_400_000;
    await settleSink();
    await store.outbox.replay(SINK, new Date(START).toISOString());
    await settleSink();
    const incidentsAfter = summarizeIncidents(server.incidents());
    return incidentsBefore.join() === incidentsAfter.join() ? [] : ["a replay a month later changed what is there"];
  }

  const problems = new Set<string>();
  try {
    for (let step = 0; settings.replays && step < OLDER_STEPS; step += 1) {
      nowMs += 60_000;
      await building.happen(nowMs, false);
    }
    await store.outbox.register(SINK, "now");
    for (let step = 0; step < STEPS; step += 1) {
      nowMs += random.pick([1_000, 20_000, 120_000]);
      await building.happen(nowMs, true);
      if (settings.replays && random.chance(0.15)) await requestReplay();
      injectFailure();
      if (random.chance(0.8)) await deliver(random.chance(0.2) ? 1 + random.below(5) : MOST_TRIES);
      await tick();
    }
    await settleSink();
    const outcome = await collectOutcome();
    for (const problem of findProblems(outcome)) problems.add(problem);
    if (settings.replays) {
      for (const problem of await replayAll()) problems.add(problem);
      for (const problem of findProblems(await collectOutcome())) problems.add(`after a replay: ${problem}`);
      for (const problem of await replayLater()) problems.add(problem);
    }
    return {
      settings: describeSettings(settings),
      unverified: killableStore.counts.unverified,
      problems: [...problems],
    };
  } finally {
    await sink.close();
    await server.stop();
    await store.close();
  }
}
