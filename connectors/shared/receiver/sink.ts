import type { output, ZodType } from "zod";
import {
  type BatchInfo,
  type ConnectorContext,
  EVENTS_ACCEPTED,
  type FailedRequest,
  type Receipt,
  type Sink,
} from "../../../src/core/connector.ts";
import {
  asFailure,
  ConfigError,
  errorText,
  LocalFailure,
  Rejected,
  Retryable,
} from "../../../src/core/errors/errors.ts";
import type { Event } from "../../../src/core/model/event.ts";
import { yieldToEventLoop } from "../../../src/core/runtime/waiting.ts";
import { isoUtc } from "../../../src/core/values/iso-utc.ts";
import { createAgenda, createIncidentPlanner, createMonotonicClock, createNotificationTiming } from "./agenda.ts";
import {
  applyEvent,
  applyGatewayReturn,
  concernsIncidents,
  endSettledGatewayGroups,
  type LedgerUpdate,
  listAlarms,
  mayJoinGatewayGroup,
} from "./apply-event.ts";
import { INCIDENT_EVENT_KINDS, type ReceiverConfig } from "./config.ts";
import { createNotifier, createRateLimitedCalls, createRetries, runTestAlarm } from "./notifier.ts";
import type { IncidentMessage, Receiver, ReceiverCall } from "./receiver-interface.ts";
import {
  clampTimes,
  getIncidentKey,
  type IncidentLedger,
  isOver,
  type StoredIncident,
  toIncident,
} from "./stored-incident.ts";
import { choosePhrases, getCachedText } from "./text.ts";
import { createTimeSeriesText } from "./time-series-text.ts";

const MAX_EVENTS_PER_BATCH = 500;
const TICK_INTERVAL_MS = 5_000;
/** Interval for checking whether gateways are online, in case the sink's filter drops `gateway-online`. */
const GATEWAY_CHECK_INTERVAL_MS = 60_000;
/** Incidents evaluated before yielding to the event loop: about 10 ms. */
const MAX_INCIDENTS_PER_EVALUATION = 100;
/** Longest time for which one write or tick sends messages; new events may be more urgent. */
const MAX_SENDING_DURATION_MS = 1_000;
/** Minimum age of events in a backlog, which the sink applies before it sends messages. */
const MIN_BACKLOG_AGE_MS = 10_000;
const BACKLOG_TICK_INTERVAL_MS = 500;
/** Open incidents per tick whose text is compared with the sent one after a restart. */
const MAX_TEXTS_COMPARED_PER_TICK = 250;
/** Priority of repeated messages; sorts after all letters, so new messages go first. */
const REPEAT_PRIORITY = "~";
/** Difference between wall clock and measured time that counts as setting the clock. */
const MIN_CLOCK_CHANGE_MS = 2_000;

/**
 * Turns a receiver into a sink. An accepted event is in the stored ledger, which is the queue from then on.
 *
 *     events ─► applyEvent: the ledger has the facts ─► settled
 *                      │ folding · timing
 *                      ▼
 *            agenda: changed or scheduled incidents ─► notifier: sends the difference ─► stored
 *              ▲                                                │
 *              └── retries: own back-off, or a pause for all ◄── failed
 */
export function createReceiverSink(receiver: Receiver, config: ReceiverConfig, context: ConnectorContext): Sink {
  const { clock, log, sinkState, building } = context;
  const monotonicMs = createMonotonicClock(clock);
  const sendTiming = createNotificationTiming(config, clock, monotonicMs, building.timeZone);
  const phrases = choosePhrases(config.language, config.words);
  const agenda = createAgenda();
  const retries = createRetries(monotonicMs, context.random);
  const rateLimitedCalls = createRateLimitedCalls(receiver.rates ?? [], clock, () => {
    for (const key of retries.delivered()) agenda.change(key);
  });
  let ledger: IncidentLedger | null = null;
  let gatewayNames: ReadonlyMap<string, string> = new Map();
  let gatewaysCheckedMs = Number.NEGATIVE_INFINITY;
  const unopenedKeys = new Set<string>();
  const openGatewayKeys = new Set<string>();
  const resendKeys = new Set<string>();
  let rejections: { readonly key: string; readonly position: number; readonly reason: string }[] = [];
  let wallClockOffsetMs = clock.now() - clock.monotonic();
  let nextCallMs = Number.NEGATIVE_INFINITY;
  const createUpdate = (ledger: IncidentLedger, overrides: Partial<LedgerUpdate> = {}): LedgerUpdate => ({
    ...{ ledger, fold: config.fold, initial: config.initial, isActive: () => true, isGatewayOffline: () => true },
    gatewayName: (source, id) => gatewayNames.get(`${source} ${id}`) ?? id,
    ...overrides,
  });

  const buildMessage = (stored: StoredIncident): IncidentMessage => {
    const incident = toIncident(getIncidentKey(stored), stored, ledger ?? new Map(), config.status_url);
    const incidentText = getCachedText(building, incident, phrases, building.timeZone(stored.source));
    return { ...incident, text: { ...incidentText, curves: stored.curves?.lines ?? [] } };
  };
  const withTimeSeries = createTimeSeriesText(config, phrases, context);
  const { call } = rateLimitedCalls;
  const notifier = createNotifier(receiver, call, buildMessage, clock.now, monotonicMs, storeIncident);
  const readLedger = () => ledger ?? new Map();
  const planIncident = createIncidentPlanner(
    receiver,
    sendTiming,
    notifier,
    retries,
    resendKeys,
    readLedger,
    monotonicMs,
  );

  async function storeIncident(stored: StoredIncident): Promise<StoredIncident> {
    const key = getIncidentKey(stored);
    await sinkState.put(new Map([[key, stored]]));
    ledger?.set(key, stored);
    return stored;
  }

  async function openLedger(): Promise<IncidentLedger> {
    if (ledger !== null) return ledger;
    const loadedLedger = new Map(await sinkState.all<StoredIncident>());
    const nowMs = monotonicMs();
    const clampedLedger = new Map([...loadedLedger].map(([key, stored]) => [key, clampTimes(stored, nowMs)]));
    await storeLedger(clampedLedger, loadedLedger);
    scheduleAll(clampedLedger, nowMs);
    return clampedLedger;
  }

  /** Evaluates all loaded incidents once: phrases, time zone or rules may have changed. */
  function scheduleAll(all: IncidentLedger, nowMs: number): void {
    let openCount = 0;
    for (const [key, stored] of all) {
      updateKeySets(key, stored);
      const { told } = stored;
      const isOpenAtReceiver = told !== null && !told.isClosed && told.isInDoubt !== true && !isOver(stored);
      if (isOpenAtReceiver) {
        agenda.later(key, nowMs + Math.floor(openCount / MAX_TEXTS_COMPARED_PER_TICK) * TICK_INTERVAL_MS);
        openCount += 1;
      } else agenda.change(key);
    }
  }

  async function loadGatewayNames(): Promise<void> {
    const gateways = await building.inventory("gateway");
    gatewayNames = new Map(gateways.map(({ source, value }) => [`${source} ${value.id}`, value.displayName]));
  }

  function updateKeySets(key: string, stored: StoredIncident | undefined): void {
    const addOrDeleteKey = (set: Set<string>, isIn: boolean) => (isIn ? set.add(key) : set.delete(key));
    addOrDeleteKey(openGatewayKeys, stored?.kind === "gateway" && !isOver(stored));
    addOrDeleteKey(unopenedKeys, stored !== undefined && stored.told === null && stored.into === null);
  }

  async function evaluateChanges(signal: AbortSignal): Promise<void> {
    for (;;) {
      const keys = agenda.take(monotonicMs(), MAX_INCIDENTS_PER_EVALUATION);
      if (keys.length === 0) return;
      const expiredKeys: string[] = [];
      for (const key of keys) {
        const stored = ledger?.get(key);
        updateKeySets(key, stored);
        const plan = stored === undefined ? null : planIncident(key, stored);
        if (stored === undefined || plan === null) unscheduleIncident(key);
        else if (plan.atMs > monotonicMs() || plan.act === "look") agenda.later(key, plan.atMs);
        else if (plan.act === "forget") expiredKeys.push(key);
        else agenda.ready(key, plan.act === "repeat" ? REPEAT_PRIORITY : stored.priority);
      }
      await forgetIncidents(expiredKeys);
      if (keys.length === MAX_INCIDENTS_PER_EVALUATION) await yieldToEventLoop();
      signal.throwIfAborted();
    }
  }

  function unscheduleIncident(key: string): void {
    agenda.later(key, Number.POSITIVE_INFINITY);
    retries.forget(key);
    resendKeys.delete(key);
  }

  async function forgetIncidents(keys: readonly string[]): Promise<void> {
    if (keys.length === 0) return;
    for (const key of keys) agenda.change(key);
    await sinkState.put(new Map(keys.map((key) => [key, null])));
    for (const key of keys) {
      ledger?.delete(key);
      updateKeySets(key, undefined);
      unscheduleIncident(key);
    }
  }

  async function sendReadyIncidents(signal: AbortSignal): Promise<void> {
    const triedIncidentKeys = new Set<string>();
    const untilMs = clock.monotonic() + MAX_SENDING_DURATION_MS;
    do {
      await evaluateChanges(signal);
      if (retries.waitMs() > 0) break;
      const key = agenda.first() ?? (retries.isDown() ? retries.earliest() : undefined);
      const stored = key === undefined ? undefined : ledger?.get(key);
      if (key === undefined || stored === undefined || triedIncidentKeys.has(key)) break;
      const waitMs = rateLimitedCalls.waitMs(chooseCall(stored));
      nextCallMs = clock.monotonic() + waitMs;
      if (waitMs > 0) break;
      signal.throwIfAborted();
      triedIncidentKeys.add(key);
      await sendOne(key, stored, signal);
    } while (clock.monotonic() < untilMs && !signal.aborted);
  }

  function chooseCall(stored: StoredIncident): ReceiverCall {
    if (stored.told === null) return stored.openingMs === null || receiver.find === undefined ? "open" : "find";
    return isOver(stored) ? "close" : "update";
  }

  /** Sends one incident. Records failures of the receiver and throws other errors. */
  async function sendOne(key: string, stored: StoredIncident, signal: AbortSignal): Promise<void> {
    const plan = planIncident(key, stored);
    agenda.later(key, Number.POSITIVE_INFINITY);
    try {
      if (plan?.act === "send" || plan?.act === "repeat")
        await notifier.send(await withTimeSeries(stored), plan.act === "repeat", signal);
      retries.forget(key);
      resendKeys.delete(key);
    } catch (error) {
      if (!rateLimitedCalls.threw(error) && error !== signal.reason) throw error;
      if (signal.aborted && !isPastDeadline(signal)) throw error;
      const failure = asFailure(isPastDeadline(signal) ? signal.reason : error);
      if (failure instanceof ConfigError || failure instanceof LocalFailure) throw error;
      if (failure instanceof Rejected) await recordRejection(key, stored, failure);
      else retries.failed(key, failure);
    } finally {
      agenda.change(key);
    }
  }

  async function recordRejection(key: string, stored: StoredIncident, failure: Rejected): Promise<void> {
    log.warn({ incident: key, alarm: stored.alarm?.id, err: failure }, "The receiver refuses a message.");
    resendKeys.delete(key);
    retries.forget(key);
    const now = ledger?.get(key) ?? stored;
    await storeIncident({ ...now, refused: notifier.digestOf(now) });
    rejections.push({ key, position: now.through, reason: errorText(failure) });
  }

  function reportNextTick(): { readonly tickInMs: number; readonly failing?: FailedRequest } {
    const nowMs = monotonicMs();
    const hasIncidentToSend = agenda.size() > 0 || retries.isDown();
    const sendingBlockedForMs = Math.max(retries.waitMs(), nextCallMs - clock.monotonic());
    const nextWorkInMs = hasIncidentToSend ? sendingBlockedForMs : agenda.nextMs() - nowMs;
    const failedRequest = retries.failing();
    const tickInMs = Math.max(0, Math.min(TICK_INTERVAL_MS, nextWorkInMs));
    return failedRequest === undefined ? { tickInMs } : { tickInMs, failing: failedRequest };
  }

  async function write(batch: readonly Event[], signal: AbortSignal, offer: BatchInfo | undefined): Promise<Receipt> {
    if (!batch.some(({ type }) => concernsIncidents(type))) return EVENTS_ACCEPTED;
    const { positions = batch.map((_, index) => index + 1), isRedelivery: again = false } = offer ?? {};
    // Work on a copy: a failed store must leave the ledger unchanged.
    const nextLedger = new Map(await openLedger());
    const previousLedger = new Map(nextLedger);
    const update = createUpdate(nextLedger, again ? await readPresentState(batch) : {});
    if (batch.some((event) => mayJoinGatewayGroup(event))) await loadGatewayNames();
    await updateSilences();
    const nowMs = monotonicMs();
    const batchIndexByKey = new Map<string, number>();
    for (const [index, event] of batch.entries()) {
      const at = { position: positions[index] ?? 0, committedAt: offer?.committedAt[index] ?? "", nowMs, again };
      for (const key of applyEvent(update, event, at)) if (!batchIndexByKey.has(key)) batchIndexByKey.set(key, index);
    }
    // Store first, so that nothing is sent that a crash would lose.
    await storeLedger(nextLedger, previousLedger);
    for (const key of batchIndexByKey.keys()) {
      agenda.change(key);
      if (ledger?.get(key)?.refused !== undefined) resendKeys.add(key);
    }
    if (isBacklog(offer)) return { rejected: [], tickInMs: BACKLOG_TICK_INTERVAL_MS };
    await sendReadyIncidents(signal);
    // A rejected message becomes a dead letter and blocks nothing. The next change sends again.
    const rejectedBatchEvents = rejections.flatMap(({ key, reason }) => {
      const index = batchIndexByKey.get(key);
      return index === undefined ? [] : [{ index, reason }];
    });
    rejections = rejections.filter(({ key }) => !batchIndexByKey.has(key));
    const { tickInMs, failing } = reportNextTick();
    return {
      rejected: rejectedBatchEvents,
      ...(tickInMs < TICK_INTERVAL_MS ? { tickInMs } : {}),
      ...(failing === undefined ? {} : { failing }),
    };
  }

  function isBacklog(offer: BatchInfo | undefined): boolean {
    const newestMs = Date.parse(offer?.committedAt.at(-1) ?? "");
    return offer?.isRedelivery === false && clock.now() - newestMs > MIN_BACKLOG_AGE_MS;
  }

  async function storeLedger(next: IncidentLedger, before: IncidentLedger): Promise<void> {
    const changedEntries = [...next].filter(([key, stored]) => before.get(key) !== stored);
    await sinkState.put(new Map(changedEntries));
    ledger = next;
    for (const [key, { into }] of changedEntries) {
      agenda.change(key);
      const previousGroup = before.get(key)?.into ?? null;
      for (const group of [into, previousGroup]) if (group !== null) agenda.change(group);
    }
  }

  /** Reads which alarms are active and which gateways are offline, to apply redelivered events. */
  async function readPresentState(batch: readonly Event[]): Promise<Partial<LedgerUpdate>> {
    const activeEpisodes = new Set<string>();
    for (const { source, id } of listAlarms(batch)) {
      const now = await building.findAlarm(source, id);
      if (now?.state === "active") activeEpisodes.add(`${source} ${now.episode}`);
    }
    const offlineGateways = await findOfflineGateways();
    return {
      isActive: (source, { episode }) => activeEpisodes.has(`${source} ${episode}`),
      isGatewayOffline: (source, id) => offlineGateways.has(`${source} ${id}`),
    };
  }

  async function findOfflineGateways(): Promise<ReadonlySet<string>> {
    const gateways = await building.inventory("gateway");
    const offlineGateways = gateways.filter(({ value, isThere }) => isThere && value.online !== true);
    return new Set(offlineGateways.map(({ source, value }) => `${source} ${value.id}`));
  }

  /** Closes groups of gateways that are online although no event reported it. */
  async function checkOnlineGateways(all: IncidentLedger): Promise<void> {
    if (openGatewayKeys.size === 0 || clock.monotonic() - gatewaysCheckedMs < GATEWAY_CHECK_INTERVAL_MS) return;
    gatewaysCheckedMs = clock.monotonic();
    const offline = await findOfflineGateways();
    const isBack = ({ source, gateway }: StoredIncident) => gateway !== null && !offline.has(`${source} ${gateway.id}`);
    const returnedGroups = [...openGatewayKeys].flatMap((key) => all.get(key) ?? []).filter(isBack);
    if (returnedGroups.length === 0) return;
    const update = createUpdate(new Map(all));
    const at = { position: Number.POSITIVE_INFINITY, time: isoUtc(clock.now()), nowMs: monotonicMs() };
    for (const { source, gateway, changeId } of returnedGroups)
      applyGatewayReturn(update, source, gateway?.id ?? "", { ...at, changeId });
    await storeLedger(update.ledger, all);
  }

  async function endGroupsOfReturnedGateways(all: IncidentLedger): Promise<void> {
    const returnedGatewayKeys = [...openGatewayKeys].filter((key) => all.get(key)?.settling !== undefined);
    if (returnedGatewayKeys.length === 0) return;
    const update = createUpdate(new Map(all));
    endSettledGatewayGroups(update, returnedGatewayKeys, monotonicMs());
    await storeLedger(update.ledger, all);
  }

  /** Evaluates unsent incidents again when a silence changed or the clock was set. */
  async function updateSilences(): Promise<void> {
    const silencesChanged = sendTiming.updateSilences(await building.silences());
    const newWallClockOffsetMs = clock.now() - clock.monotonic();
    if (!silencesChanged && Math.abs(newWallClockOffsetMs - wallClockOffsetMs) < MIN_CLOCK_CHANGE_MS) return;
    wallClockOffsetMs = newWallClockOffsetMs;
    for (const key of unopenedKeys) agenda.change(key);
  }

  return {
    maxBatch: MAX_EVENTS_PER_BATCH,
    ...(receiver.serverId === undefined ? {} : { serverId: receiver.serverId }),
    ...(receiver.progressMs === undefined ? {} : { progressMs: receiver.progressMs }),

    async open(signal) {
      signal.throwIfAborted();
      await openLedger();
    },

    async write(batch, signal, _accepted, offer) {
      signal.throwIfAborted();
      return write(batch, signal, offer);
    },

    pendingRequests: () => agenda.size() - agenda.sizeOf(REPEAT_PRIORITY) + retries.size(),

    async tick(signal) {
      await updateSilences();
      await checkOnlineGateways(await openLedger());
      await endGroupsOfReturnedGateways(await openLedger());
      await sendReadyIncidents(signal);
      // An event outside the log cannot be a dead letter.
      const rejectedEvents = rejections.filter(({ position }) => position > 0);
      rejections = [];
      return { ...reportNextTick(), ...(rejectedEvents.length === 0 ? {} : { refused: rejectedEvents }) };
    },

    test: (report, signal) => runTestAlarm(receiver, buildMessage, clock, report, signal),
    probe: (signal) => receiver.probe(signal),
    close: () => receiver.dispose(),
  };
}

export function defineReceiverConnector<S extends ZodType<ReceiverConfig>>(
  name: string,
  summary: string,
  Config: S,
  load: () => Promise<(config: output<S>, context: ConnectorContext) => Receiver>,
) {
  return {
    name,
    summary,
    Config,
    kinds: () => INCIDENT_EVENT_KINDS,
    async sink(config: output<S>, context: ConnectorContext) {
      return createReceiverSink((await load())(config, context), config, context);
    },
  };
}

/** Returns true when the deadline of the engine ended the call, not a stop. */
const isPastDeadline = ({ aborted, reason }: AbortSignal): boolean => aborted && reason instanceof Retryable;
