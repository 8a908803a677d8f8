import type { output, ZodType } from "zod";
import {
  type BatchInfo,
  type ConnectorContext,
  EVENTS_ACCEPTED,
  type FailedRequest,
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
import {
  applyEvent,
  applyGatewayReturn,
  endSettledGatewayGroups,
  isIncidentEventKind,
  type LedgerUpdate,
  listAlarmIds,
  mayJoinGatewayGroup,
} from "./apply-event.ts";
import { INCIDENT_EVENT_KINDS, type ReceiverConfig } from "./config.ts";
import {
  createIncidentPlanner,
  createIncidentQueue,
  createMonotonicClock,
  createNotificationTiming,
} from "./incident-queue.ts";
import { chooseMessagePhrases, getCachedIncidentText } from "./message-texts.ts";
import { createIncidentNotifier, createIncidentRetries, createRateLimitedCalls, runTestAlarm } from "./notifier.ts";
import type { AlarmReceiver, IncidentMessage, ReceiverCall } from "./receiver-interface.ts";
import {
  clampIncidentTimes,
  getIncidentKey,
  type IncidentLedger,
  isResolved,
  type StoredIncident,
  toIncident,
} from "./stored-incident.ts";
import { createTimeSeriesText } from "./time-series-text.ts";

const MAX_EVENTS_PER_BATCH = 500;
/** Each event of an alarm storm scans the ledger: 50 events take 20 ms with 5,000 incidents. */
const EVENTS_APPLIED_BEFORE_YIELD = 50;
const SINK_TICK_INTERVAL_MS = 5_000;
/** Interval for checking whether gateways are online, in case the sink's filter drops `gateway-online`. */
const GATEWAY_CHECK_INTERVAL_MS = 60_000;
/** Incidents that the sink evaluates before it yields to the event loop; evaluating them takes about 10 ms. */
const MAX_INCIDENTS_PER_EVALUATION = 100;
/** Longest time for which one write or tick sends messages; new events may be more urgent. */
const MAX_SENDING_DURATION_MS = 1_000;
/** Events older than this are a backlog. The sink stores a complete backlog before it sends messages. */
const MIN_BACKLOG_AGE_MS = 10_000;
const BACKLOG_TICK_INTERVAL_MS = 500;
/** Maximum texts per tick that the sink compares after a restart: texts of all open incidents with the sent texts. */
const MAX_TEXTS_COMPARED_PER_TICK = 250;
/** Priority of repeated messages; sorts after all letters, so new messages go first. */
const REPEATED_MESSAGE_PRIORITY = "~";
/** Smallest jump of the wall clock that counts as setting the clock. */
const MIN_CLOCK_CHANGE_MS = 2_000;

/**
 * Turns a receiver into a sink. The sink accepts an event once the stored ledger of incidents contains its facts.
 *     events ─► applyEvent: update and store the ledger ─► accepted
 *                      │ grouping · timing
 *                      ▼
 *             queue: changed or scheduled incidents ─► notifier: sends changed incidents ─► stored
 *              ▲                                                │
 *              └── retries: own back-off, or a pause for all ◄── failed
 */
export function createReceiverSink(receiver: AlarmReceiver, config: ReceiverConfig, context: ConnectorContext): Sink {
  const { clock, log, sinkState, building } = context;
  const monotonicMs = createMonotonicClock(clock);
  const notificationTiming = createNotificationTiming(config, clock, monotonicMs, building.timeZone);
  const messagePhrases = chooseMessagePhrases(config.language, config.words);
  const incidentQueue = createIncidentQueue();
  const incidentRetries = createIncidentRetries(monotonicMs, context.random);
  const rateLimitedCalls = createRateLimitedCalls(receiver.rates ?? [], clock, () => {
    for (const key of incidentRetries.recordSuccess()) incidentQueue.markChanged(key);
  });
  let ledger: IncidentLedger | null = null;
  let gatewayNames: ReadonlyMap<string, string> = new Map();
  let lastGatewayCheckMs = Number.NEGATIVE_INFINITY;
  const unopenedIncidentKeys = new Set<string>();
  const openGatewayGroupKeys = new Set<string>();
  const incidentKeysToResend = new Set<string>();
  let rejections: { readonly key: string; readonly position: number; readonly reason: string }[] = [];
  let mayGatewayCheckBePending = config.fold.gateway;
  let wallClockOffsetMs = clock.now() - clock.monotonic();
  let nextCallMs = Number.NEGATIVE_INFINITY;
  const createLedgerUpdate = (ledger: IncidentLedger, overrides: Partial<LedgerUpdate> = {}): LedgerUpdate => ({
    ...{ ledger, fold: config.fold, initial: config.initial, isActive: () => true, isGatewayOffline: () => true },
    gatewayName: (source, id) => gatewayNames.get(`${source} ${id}`) ?? id,
    ...overrides,
  });

  const buildIncidentMessage = (storedIncident: StoredIncident): IncidentMessage => {
    const incident = toIncident(getIncidentKey(storedIncident), storedIncident, ledger ?? new Map(), config.status_url);
    const incidentText = getCachedIncidentText(
      building,
      incident,
      messagePhrases,
      building.timeZone(storedIncident.source),
    );
    return { ...incident, text: { ...incidentText, timeSeriesLines: storedIncident.curves?.lines ?? [] } };
  };
  const addTimeSeries = createTimeSeriesText(config, messagePhrases, context);
  const { call } = rateLimitedCalls;
  const notifier = createIncidentNotifier(receiver, call, buildIncidentMessage, clock.now, monotonicMs, storeIncident);
  const planIncident = createIncidentPlanner(
    receiver,
    notificationTiming,
    notifier,
    incidentRetries,
    incidentKeysToResend,
    () => ledger ?? new Map(),
    monotonicMs,
  );

  async function storeIncident(storedIncident: StoredIncident): Promise<StoredIncident> {
    const key = getIncidentKey(storedIncident);
    await sinkState.put(new Map([[key, storedIncident]]));
    ledger?.set(key, storedIncident);
    return storedIncident;
  }

  async function loadIncidentLedger(): Promise<IncidentLedger> {
    if (ledger !== null) return ledger;
    const loadedLedger = new Map(await sinkState.all<StoredIncident>());
    const nowMs = monotonicMs();
    const clampedLedger = new Map([...loadedLedger].map(([key, stored]) => [key, clampIncidentTimes(stored, nowMs)]));
    await storeIncidentLedger(clampedLedger, loadedLedger);
    scheduleAllIncidents(clampedLedger, nowMs);
    return clampedLedger;
  }

  /** Evaluates all loaded incidents once: phrases, time zone or rules may have changed. */
  function scheduleAllIncidents(fullLedger: IncidentLedger, nowMs: number): void {
    let openCount = 0;
    for (const [key, incident] of fullLedger) {
      updateIncidentKeySets(key, incident);
      const { told } = incident;
      const isOpenAtReceiver = told !== null && !told.isClosed && told.isInDoubt !== true && !isResolved(incident);
      if (isOpenAtReceiver) {
        const ticksUntilComparison = Math.floor(openCount / MAX_TEXTS_COMPARED_PER_TICK);
        incidentQueue.postponeIncident(key, nowMs + ticksUntilComparison * SINK_TICK_INTERVAL_MS);
        openCount += 1;
      } else incidentQueue.markChanged(key);
    }
  }

  async function loadGatewayNames(): Promise<void> {
    const gateways = await building.inventory("gateway");
    gatewayNames = new Map(gateways.map(({ source, value }) => [`${source} ${value.id}`, value.displayName]));
  }

  function updateIncidentKeySets(key: string, storedIncident: StoredIncident | undefined): void {
    const addOrDeleteIncidentKey = (set: Set<string>, isMember: boolean) => (isMember ? set.add(key) : set.delete(key));
    addOrDeleteIncidentKey(openGatewayGroupKeys, storedIncident?.kind === "gateway" && !isResolved(storedIncident));
    addOrDeleteIncidentKey(
      unopenedIncidentKeys,
      storedIncident !== undefined && storedIncident.told === null && storedIncident.into === null,
    );
  }

  async function evaluateChangedIncidents(signal: AbortSignal): Promise<void> {
    for (;;) {
      const keys = incidentQueue.takeDueKeys(monotonicMs(), MAX_INCIDENTS_PER_EVALUATION);
      if (keys.length === 0) return;
      const expiredIncidentKeys: string[] = [];
      for (const key of keys) {
        const storedIncident = ledger?.get(key);
        updateIncidentKeySets(key, storedIncident);
        const plan = storedIncident === undefined ? null : planIncident(key, storedIncident);
        // Clear the back-off: the incident waits for the end of quiet hours or of a silence, not for the receiver.
        if (plan?.action === "look") incidentRetries.clearRetry(key);
        if (storedIncident === undefined || plan === null) unscheduleIncident(key);
        else if (plan.atMs > monotonicMs() || plan.action === "look") incidentQueue.postponeIncident(key, plan.atMs);
        else if (plan.action === "forget") expiredIncidentKeys.push(key);
        else
          incidentQueue.markReady(key, plan.action === "repeat" ? REPEATED_MESSAGE_PRIORITY : storedIncident.priority);
      }
      await deleteExpiredIncidents(expiredIncidentKeys);
      if (keys.length === MAX_INCIDENTS_PER_EVALUATION) await yieldToEventLoop();
      signal.throwIfAborted();
    }
  }

  function unscheduleIncident(key: string): void {
    incidentQueue.postponeIncident(key, Number.POSITIVE_INFINITY);
    incidentRetries.clearRetry(key);
    incidentKeysToResend.delete(key);
  }

  async function deleteExpiredIncidents(keys: readonly string[]): Promise<void> {
    if (keys.length === 0) return;
    for (const key of keys) incidentQueue.markChanged(key);
    await sinkState.put(new Map(keys.map((key) => [key, null])));
    for (const key of keys) {
      ledger?.delete(key);
      updateIncidentKeySets(key, undefined);
      unscheduleIncident(key);
    }
  }

  async function sendReadyIncidents(signal: AbortSignal): Promise<void> {
    const triedIncidentKeys = new Set<string>();
    const sendingDeadlineMs = clock.monotonic() + MAX_SENDING_DURATION_MS;
    do {
      await evaluateChangedIncidents(signal);
      if (incidentRetries.waitMs() > 0) break;
      const key = chooseNextIncident();
      const storedIncident = key === undefined ? undefined : ledger?.get(key);
      if (key === undefined || storedIncident === undefined || triedIncidentKeys.has(key)) break;
      const waitMs = rateLimitedCalls.waitMs(chooseReceiverCall(storedIncident));
      nextCallMs = clock.monotonic() + waitMs;
      if (waitMs > 0) break;
      signal.throwIfAborted();
      triedIncidentKeys.add(key);
      await sendIncident(key, storedIncident, signal);
    } while (clock.monotonic() < sendingDeadlineMs && !signal.aborted);
  }

  const chooseNextIncident = () =>
    incidentQueue.findFirstReadyKey() ?? (incidentRetries.isDown() ? incidentRetries.earliestRetryKey() : undefined);

  function chooseReceiverCall(storedIncident: StoredIncident): ReceiverCall {
    if (storedIncident.told === null)
      return storedIncident.openingMs === null || receiver.find === undefined ? "open" : "find";
    return isResolved(storedIncident) ? "close" : "update";
  }

  /** Sends one incident. Records failures of the receiver and throws other errors. */
  async function sendIncident(key: string, storedIncident: StoredIncident, signal: AbortSignal): Promise<void> {
    const plan = planIncident(key, storedIncident);
    incidentQueue.postponeIncident(key, Number.POSITIVE_INFINITY);
    try {
      if (plan?.action === "send" || plan?.action === "repeat")
        await notifier.send(await addTimeSeries(storedIncident), plan.action === "repeat", signal);
      incidentRetries.clearRetry(key);
      incidentKeysToResend.delete(key);
    } catch (error) {
      if (!rateLimitedCalls.isReceiverError(error) && error !== signal.reason) throw error;
      if (signal.aborted && !isPastDeadline(signal)) throw error;
      const failure = asFailure(isPastDeadline(signal) ? signal.reason : error);
      if (failure instanceof ConfigError || failure instanceof LocalFailure) throw error;
      if (failure instanceof Rejected) await recordMessageRejection(key, storedIncident, failure);
      else incidentRetries.recordFailure(key, failure);
    } finally {
      incidentQueue.markChanged(key);
    }
  }

  async function recordMessageRejection(key: string, storedIncident: StoredIncident, failure: Rejected): Promise<void> {
    log.warn({ incident: key, alarm: storedIncident.alarm?.id, err: failure }, "The receiver refuses a message.");
    incidentKeysToResend.delete(key);
    incidentRetries.clearRetry(key);
    const currentIncident = ledger?.get(key) ?? storedIncident;
    await storeIncident({ ...currentIncident, refused: notifier.computeDigest(currentIncident) });
    rejections.push({ key, position: currentIncident.through, reason: errorText(failure) });
  }

  function buildTickResult(): { readonly tickInMs: number; readonly failing?: FailedRequest } {
    const nowMs = monotonicMs();
    const hasIncidentToSend = chooseNextIncident() !== undefined;
    const sendingBlockedForMs = Math.max(incidentRetries.waitMs(), nextCallMs - clock.monotonic());
    const nextWorkInMs = hasIncidentToSend ? sendingBlockedForMs : incidentQueue.nextEvaluationMs() - nowMs;
    const failedRequest = incidentRetries.describeFailure();
    const tickInMs = Math.max(0, Math.min(SINK_TICK_INTERVAL_MS, nextWorkInMs));
    return failedRequest === undefined ? { tickInMs } : { tickInMs, failing: failedRequest };
  }

  async function writeEvents(batch: readonly Event[], signal: AbortSignal, batchInfo: BatchInfo | undefined) {
    if (!batch.some(({ type }) => isIncidentEventKind(type))) return EVENTS_ACCEPTED;
    const { positions = batch.map((_, index) => index + 1), isRedelivery = false } = batchInfo ?? {};
    // Work on a copy: a failed store must leave the ledger unchanged.
    const nextLedger = new Map(await loadIncidentLedger());
    const previousLedger = new Map(nextLedger);
    const update = createLedgerUpdate(nextLedger, isRedelivery ? await readAlarmAndGatewayStates(batch) : {});
    if (batch.some((event) => mayJoinGatewayGroup(event))) await loadGatewayNames();
    mayGatewayCheckBePending = config.fold.gateway;
    await updateNotificationTiming();
    const nowMs = monotonicMs();
    const indexByKey = new Map<string, number>();
    for (const [index, event] of batch.entries()) {
      if (index > 0 && index % EVENTS_APPLIED_BEFORE_YIELD === 0) await yieldToEventLoop();
      const committedAt = batchInfo?.committedAt[index] ?? "";
      const deliveryContext = { position: positions[index] ?? 0, committedAt, nowMs, isRedelivery };
      for (const key of applyEvent(update, event, deliveryContext))
        if (!indexByKey.has(key)) indexByKey.set(key, index);
    }
    // Store first, so that nothing is sent that a crash would lose.
    await storeIncidentLedger(nextLedger, previousLedger);
    for (const key of indexByKey.keys()) {
      incidentQueue.markChanged(key);
      if (ledger?.get(key)?.refused !== undefined) incidentKeysToResend.add(key);
    }
    if (isBacklogBatch(batchInfo)) return { rejected: [], tickInMs: BACKLOG_TICK_INTERVAL_MS };
    await sendReadyIncidents(signal);
    // An event whose message was rejected becomes a dead letter. Later changes of the incident are still sent.
    const rejectedBatchEvents = rejections.flatMap(({ key, reason }) => {
      const index = indexByKey.get(key);
      return index === undefined ? [] : [{ index, reason }];
    });
    rejections = rejections.filter(({ key }) => !indexByKey.has(key));
    return { rejected: rejectedBatchEvents, ...buildTickResult() };
  }

  function isBacklogBatch(batchInfo: BatchInfo | undefined): boolean {
    const newestCommitMs = Date.parse(batchInfo?.committedAt.at(-1) ?? "");
    return batchInfo?.isRedelivery === false && clock.now() - newestCommitMs > MIN_BACKLOG_AGE_MS;
  }

  async function storeIncidentLedger(nextLedger: IncidentLedger, previousLedger: IncidentLedger): Promise<void> {
    const changedIncidents = [...nextLedger].filter(([key, incident]) => previousLedger.get(key) !== incident);
    await sinkState.put(new Map(changedIncidents));
    ledger = nextLedger;
    for (const [key, { into }] of changedIncidents) {
      incidentQueue.markChanged(key);
      const previousGroupKey = previousLedger.get(key)?.into ?? null;
      for (const groupKey of [into, previousGroupKey]) if (groupKey !== null) incidentQueue.markChanged(groupKey);
    }
  }

  /** Reads which alarms are active and which gateways are offline, to apply redelivered events. */
  async function readAlarmAndGatewayStates(batch: readonly Event[]): Promise<Partial<LedgerUpdate>> {
    const activeAlarmEpisodes = new Set<string>();
    for (const { source, id } of listAlarmIds(batch)) {
      const alarmView = await building.findAlarm(source, id);
      if (alarmView?.state === "active") activeAlarmEpisodes.add(`${source} ${alarmView.episode}`);
    }
    const offlineGateways = await findOfflineGateways();
    return {
      isActive: (source, { episode }) => activeAlarmEpisodes.has(`${source} ${episode}`),
      isGatewayOffline: (source, id) => offlineGateways.has(`${source} ${id}`),
    };
  }

  async function findOfflineGateways(): Promise<ReadonlySet<string>> {
    const gateways = await building.inventory("gateway");
    const offlineGateways = gateways.filter(({ value, isListed }) => isListed && value.online !== true);
    return new Set(offlineGateways.map(({ source, value }) => `${source} ${value.id}`));
  }

  /** Closes the incident group of each gateway that is online again, even if its `gateway-online` event is missing. */
  async function endGroupsOfOnlineGateways(fullLedger: IncidentLedger): Promise<void> {
    if (openGatewayGroupKeys.size === 0 || clock.monotonic() - lastGatewayCheckMs < GATEWAY_CHECK_INTERVAL_MS) return;
    lastGatewayCheckMs = clock.monotonic();
    const offlineGateways = await findOfflineGateways();
    const update = createLedgerUpdate(new Map(fullLedger));
    const reconnection = { position: Number.POSITIVE_INFINITY, time: isoUtc(clock.now()), nowMs: monotonicMs() };
    for (const key of openGatewayGroupKeys) {
      const { changeId = "", gateway = null, source = "" } = fullLedger.get(key) ?? {};
      if (gateway !== null && !offlineGateways.has(`${source} ${gateway.id}`))
        applyGatewayReturn(update, source, gateway.id, { ...reconnection, changeId });
    }
    await storeIncidentLedger(update.ledger, fullLedger);
  }

  async function endGroupsOfReturnedGateways(fullLedger: IncidentLedger): Promise<void> {
    const settlingGroupKeys = [...openGatewayGroupKeys].filter((key) => fullLedger.get(key)?.settling !== undefined);
    if (settlingGroupKeys.length === 0) return;
    const update = createLedgerUpdate(new Map(fullLedger));
    endSettledGatewayGroups(update, settlingGroupKeys, monotonicMs());
    await storeIncidentLedger(update.ledger, fullLedger);
  }

  /** Updates silences and gateway checks. Evaluates unsent incidents again if a silence or the clock has changed. */
  async function updateNotificationTiming(): Promise<void> {
    if (mayGatewayCheckBePending)
      mayGatewayCheckBePending = notificationTiming.updateGatewayChecks(await building.pendingGatewayChecks());
    const silencesChanged = notificationTiming.updateSilences(await building.silences());
    const newWallClockOffsetMs = clock.now() - clock.monotonic();
    if (!silencesChanged && Math.abs(newWallClockOffsetMs - wallClockOffsetMs) < MIN_CLOCK_CHANGE_MS) return;
    wallClockOffsetMs = newWallClockOffsetMs;
    for (const key of unopenedIncidentKeys) incidentQueue.markChanged(key);
  }

  return {
    maxBatch: MAX_EVENTS_PER_BATCH,
    ...(receiver.serverId === undefined ? {} : { serverId: receiver.serverId }),
    ...(receiver.progressMs === undefined ? {} : { progressMs: receiver.progressMs }),

    async open(signal) {
      signal.throwIfAborted();
      await loadIncidentLedger();
    },

    async write(batch, signal, _acceptEvents, batchInfo) {
      signal.throwIfAborted();
      return writeEvents(batch, signal, batchInfo);
    },

    pendingRequests: () =>
      incidentQueue.readyCount() -
      incidentQueue.readyCountOfPriority(REPEATED_MESSAGE_PRIORITY) +
      incidentRetries.countPendingRetries((key) => !incidentQueue.isReady(key)),

    async tick(signal) {
      await updateNotificationTiming();
      await endGroupsOfOnlineGateways(await loadIncidentLedger());
      await endGroupsOfReturnedGateways(await loadIncidentLedger());
      await sendReadyIncidents(signal);
      // An event without a position in the event log cannot become a dead letter.
      const rejectedEvents = rejections.filter(({ position }) => position > 0);
      rejections = [];
      return { ...buildTickResult(), ...(rejectedEvents.length === 0 ? {} : { refused: rejectedEvents }) };
    },

    test: (report, signal) => runTestAlarm(receiver, buildIncidentMessage, clock, report, signal),
    probe: (signal) => receiver.probe(signal),
    close: () => receiver.dispose(),
  };
}

export function defineReceiverConnector<S extends ZodType<ReceiverConfig>>(
  name: string,
  summary: string,
  Config: S,
  loadReceiver: () => Promise<(config: output<S>, context: ConnectorContext) => AlarmReceiver>,
) {
  return {
    name,
    summary,
    Config,
    kinds: () => INCIDENT_EVENT_KINDS,
    async sink(config: output<S>, context: ConnectorContext) {
      return createReceiverSink((await loadReceiver())(config, context), config, context);
    },
  };
}

/** Returns true if the engine's deadline ended the call; false if a stop ended it. */
const isPastDeadline = ({ aborted, reason }: AbortSignal): boolean => aborted && reason instanceof Retryable;
