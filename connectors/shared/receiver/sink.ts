import {
  ACCEPTED,
  type BuildingView,
  type ConnectorContext,
  type Failing,
  type Offered,
  type Receipt,
  type Sink,
} from "../../../src/core/connector.ts";
import {
  ConfigError,
  LocalFailure,
  meaningOf,
  Rejected,
  Retryable,
  sentence,
} from "../../../src/core/errors/errors.ts";
import type { AlarmFact, Event } from "../../../src/core/model/event.ts";
import { yieldToEventLoop } from "../../../src/core/runtime/waiting.ts";
import { isoUtc } from "../../../src/core/values/iso-utc.ts";
import { createAgenda, createPlanner } from "./agenda.ts";
import { absorb, alarmsIn, concernsIncidents, createFolding, mayFold } from "./apply-event.ts";
import type { ReceiverConfig } from "./config.ts";
import { createNotifier, entry, tryOut } from "./notifier.ts";
import { vocabulary } from "./phrases.ts";
import type { Call, IncidentMessage, Receiver } from "./receiver.ts";
import { createCalls, createRateLimiter, createRetries } from "./retries.ts";
import {
  type IncidentLedger,
  incidentOf,
  isOver,
  keyOf,
  noneAhead,
  type StoredIncident,
} from "./stored-incident.ts";
import { sharedText } from "./text.ts";
import { createTimeSeriesText } from "./time-series-text.ts";
import { createMonotonicClock, createTiming } from "./timing.ts";

/** Events that one write takes at most: what several of them say of one alarm is sent once. */
const MAX_BATCH = 500;
/** The longest time between two ticks, in milliseconds: silences that begin or end are noticed by then. */
const TICK_MS = 5_000;
/** Whether gateways are back is looked at this often, in milliseconds, should the sink's filter leave that event out. */
const GATEWAY_LOOK_MS = 60_000;
/** Incidents that are evaluated before the event loop has its turn: about 10 ms. */
const MOST_AT_ONCE = 100;
/** How long one write or tick sends, in milliseconds, before new events are looked at: they may be more urgent. */
const SENDING_MS = 1_000;
/** Events that are older than this, in milliseconds, are a backlog: all of it is absorbed before much of it is sent. */
const BACKLOG_MS = 10_000;
/** While there is a backlog, a tick comes between its batches this often, in milliseconds. */
const BACKLOG_TICK_MS = 500;
/** After a restart the texts of so many open incidents are compared per tick with what was sent. */
const CHECKED_PER_TICK = 250;
/** Priority of a repetition: after everything that is new, because it sorts behind all letters. */
const AFTER_ALL = "~";
/** The wall clock was set when it moves so much more or less than measured time, in milliseconds. */
const CLOCK_STEP_MS = 2_000;

/**
 * Makes a sink of a receiver: one thing there for one alarm.
 *
 *   events ─► absorb: the book says what is true ─► settled
 *                       │ folding · timing
 *                       ▼
 *             agenda: incidents that changed or are due ─► tell: the receiver is brought up to the book ─► remembered
 *               ▲                                            │
 *               └── retries: own back-off, or all wait ◄─────┘ failed
 *
 * An event is accepted when what it says is in the book on the disk. From then on the book is the queue: what there is to
 * send is the difference between what is true and what the receiver knows, however many events made it. Only incidents
 * that changed, or whose time has come, are looked at: standing alarms cost nothing.
 */
export function createReceiverSink(
  receiver: Receiver,
  config: ReceiverConfig,
  context: ConnectorContext,
): Sink {
  const { clock, log, memory, picture } = context;
  const onwardMs = createMonotonicClock(clock);
  const timing = createTiming(config, { clock, onwardMs, zoneOf: picture.timeZone });
  const words = vocabulary(config.language, config.words);
  const agenda = createAgenda();
  const retries = createRetries(onwardMs, context.random);
  const rates = createRateLimiter(receiver.rates ?? [], clock);
  const calls = createCalls(receiver, rates, () => {
    for (const key of retries.delivered()) agenda.change(key);
  });
  let book: IncidentLedger | null = null;
  let gatewayNames: ReadonlyMap<string, string> = new Map();
  let gatewaysLookedMs = Number.NEGATIVE_INFINITY;
  /** Gateways that are away, by key; incidents that the receiver does not know and that stand by themselves. */
  const openGateways = new Set<string>();
  const unopened = new Set<string>();
  /** Incidents that are sent once more although the receiver refused the same: an event asks for it. */
  const demanded = new Set<string>();
  /** Refusals of the receiver that become dead letters. */
  let refusals: { readonly key: string; readonly position: number; readonly reason: string }[] = [];
  let wallAheadMs = clock.now() - clock.monotonic();
  /** When the rate of the receiver allows the next call, by the measured clock. */
  let nextCallMs = Number.NEGATIVE_INFINITY;
  const folding = createFolding(config.fold, (source, id) => gatewayNames.get(`${source} ${id}`) ?? id);

  const toldOf = (held: StoredIncident): IncidentMessage => {
    const incident = incidentOf(keyOf(held), held, book ?? new Map(), config.status_url);
    const text = sharedText(picture, incident, words, picture.timeZone(held.source));
    return { ...incident, text: { ...text, curves: held.curves?.lines ?? [] } };
  };
  const withCurves = createTimeSeriesText(config, words, context);
  const teller = createNotifier({
    receiver: calls.receiver,
    told: toldOf,
    wallMs: clock.now,
    onwardMs,
    async remember(held) {
      await memory.put(entry(keyOf(held), held));
      book?.set(keyOf(held), held);
    },
  });

  const planOf = createPlanner({
    ...{ receiver, timing, teller, retries, demanded, onwardMs },
    book: () => book ?? new Map(),
  });

  async function open(): Promise<IncidentLedger> {
    if (book !== null) return book;
    const remembered = new Map(await memory.all<StoredIncident>());
    const nowMs = onwardMs();
    const next = new Map([...remembered].map(([key, held]) => [key, noneAhead(held, nowMs)]));
    await take(next, remembered);
    schedule(next, nowMs);
    return next;
  }

  /** All that was remembered is looked at once: the words, the zone or a rule may be others than before. */
  function schedule(all: IncidentLedger, nowMs: number): void {
    let standing = 0;
    for (const [key, held] of all) {
      note(key, held);
      const { told } = held;
      const stands = told !== null && !told.isClosed && told.isInDoubt !== true && !isOver(held);
      // To compare these takes a text each, so they are spread.
      if (stands) {
        agenda.later(key, nowMs + Math.floor(standing / CHECKED_PER_TICK) * TICK_MS);
        standing += 1;
      } else agenda.change(key);
    }
  }

  async function nameGateways(): Promise<void> {
    const gateways = await picture.inventory("gateway");
    gatewayNames = new Map(gateways.map(({ source, value }) => [`${source} ${value.id}`, value.displayName]));
  }

  /** Keeps count of what has to be found without a look at all incidents. */
  function note(key: string, held: StoredIncident | undefined): void {
    const put = (set: Set<string>, isIn: boolean) => (isIn ? set.add(key) : set.delete(key));
    put(openGateways, held?.kind === "gateway" && !isOver(held));
    put(unopened, held !== undefined && held.told === null && held.into === null);
  }

  /** Evaluates what changed and what is due; what is to be forgotten is. */
  async function evaluate(signal: AbortSignal): Promise<void> {
    for (;;) {
      const keys = agenda.take(onwardMs(), MOST_AT_ONCE);
      if (keys.length === 0) return;
      const old: string[] = [];
      for (const key of keys) {
        const held = book?.get(key);
        note(key, held);
        const plan = held === undefined ? null : planOf(key, held);
        if (held === undefined || plan === null) drop(key);
        else if (plan.atMs > onwardMs() || plan.act === "look") agenda.later(key, plan.atMs);
        else if (plan.act === "forget") old.push(key);
        else agenda.ready(key, plan.act === "repeat" ? AFTER_ALL : held.priority);
      }
      await forget(old);
      if (keys.length === MOST_AT_ONCE) await yieldToEventLoop();
      signal.throwIfAborted();
    }
  }

  function drop(key: string): void {
    agenda.later(key, Number.POSITIVE_INFINITY);
    retries.forget(key);
    demanded.delete(key);
  }

  async function forget(keys: readonly string[]): Promise<void> {
    if (keys.length === 0) return;
    for (const key of keys) agenda.change(key);
    await memory.put(new Map(keys.map((key) => [key, null])));
    for (const key of keys) {
      book?.delete(key);
      note(key, undefined);
      drop(key);
    }
  }

  /** Sends what is ready, the most urgent first, each incident once. */
  async function send(signal: AbortSignal): Promise<void> {
    const tried = new Set<string>();
    const untilMs = clock.monotonic() + SENDING_MS;
    do {
      await evaluate(signal);
      if (retries.waitMs() > 0) break;
      const key = agenda.first() ?? (retries.isDown() ? retries.earliest() : undefined);
      const held = key === undefined ? undefined : book?.get(key);
      if (key === undefined || held === undefined || tried.has(key)) break;
      const waitMs = rates.waitMs(callFor(held));
      nextCallMs = clock.monotonic() + waitMs;
      if (waitMs > 0) break;
      signal.throwIfAborted();
      tried.add(key);
      await sendOne(key, held, signal);
    } while (clock.monotonic() < untilMs && !signal.aborted);
  }

  function callFor(held: StoredIncident): Call {
    if (held.told === null) return held.openingMs === null || receiver.find === undefined ? "open" : "find";
    return isOver(held) ? "close" : "update";
  }

  /** Brings the receiver up to date with one incident; a failure of the receiver is noted, any other is thrown. */
  async function sendOne(key: string, held: StoredIncident, signal: AbortSignal): Promise<void> {
    const plan = planOf(key, held);
    agenda.later(key, Number.POSITIVE_INFINITY);
    try {
      if (plan?.act === "send" || plan?.act === "repeat")
        await teller.tell(await withCurves(held), plan.act === "repeat", signal);
      retries.forget(key);
      demanded.delete(key);
    } catch (error) {
      if (!calls.haveThrown(error) && error !== signal.reason) throw error;
      if (signal.aborted && !isTooLate(signal)) throw error;
      const failure = meaningOf(isTooLate(signal) ? signal.reason : error);
      if (failure instanceof ConfigError || failure instanceof LocalFailure) throw error;
      if (failure instanceof Rejected) await refuse(key, held, failure);
      else retries.failed(key, failure);
    } finally {
      agenda.change(key);
    }
  }

  async function refuse(key: string, held: StoredIncident, failure: Rejected): Promise<void> {
    log.warn({ incident: key, alarm: held.alarm?.id, err: failure }, "The receiver refuses a message.");
    demanded.delete(key);
    retries.forget(key);
    const now = book?.get(key) ?? held;
    const known = { ...now, refused: teller.digestOf(now) };
    await memory.put(entry(key, known));
    book?.set(key, known);
    refusals.push({ key, position: known.through, reason: sentence(failure) });
  }

  /** Tells the engine when to call again, and what fails. */
  function report(): { readonly inMs: number; readonly failing?: Failing } {
    const nowMs = onwardMs();
    const hasReady = agenda.size() > 0 || retries.isDown();
    const blockedMs = Math.max(retries.waitMs(), nextCallMs - clock.monotonic());
    const dueMs = hasReady ? blockedMs : agenda.nextMs() - nowMs;
    const failing = retries.failing();
    const inMs = Math.max(0, Math.min(TICK_MS, dueMs));
    return failing === undefined ? { inMs } : { inMs, failing };
  }

  async function write(
    batch: readonly Event[],
    signal: AbortSignal,
    offer: Offered | undefined,
  ): Promise<Receipt> {
    if (!batch.some(({ type }) => concernsIncidents(type))) return ACCEPTED;
    const { positions = batch.map((_, index) => index + 1), again = false } = offer ?? {};
    // A copy: what could not be written down has not happened.
    const next = new Map(await open());
    const before = new Map(next);
    const isActive = again ? await lookUp(picture, batch) : () => true;
    const away = again ? await gatewaysAway() : null;
    const isAway = (source: string, id: string) => away === null || away.has(`${source} ${id}`);
    if (batch.some((event) => mayFold(event))) await nameGateways();
    await agree();
    const nowMs = onwardMs();
    /** By incident, the first event of this batch that is about it. */
    const concerned = new Map<string, number>();
    for (const [index, event] of batch.entries()) {
      const at = {
        position: positions[index] ?? 0,
        committedAt: offer?.committedAt[index] ?? "",
        nowMs,
        again,
      };
      for (const key of absorb(next, event, at, { folding, initial: config.initial, isActive, isAway })) {
        if (!concerned.has(key)) concerned.set(key, index);
      }
    }
    // First on the disk, so that what is sent of it later is never of something that is forgotten.
    await take(next, before);
    for (const key of concerned.keys()) {
      agenda.change(key);
      if (book?.get(key)?.refused !== undefined) demanded.add(key);
    }
    if (isBacklog(offer)) return { rejected: [], tickInMs: BACKLOG_TICK_MS };
    await send(signal);
    // A dead letter each: nothing else waits for what is refused, and the next change tries again.
    const rejected = refusals.flatMap(({ key, reason }) => {
      const index = concerned.get(key);
      return index === undefined ? [] : [{ index, reason }];
    });
    refusals = refusals.filter(({ key }) => !concerned.has(key));
    const { inMs, failing } = report();
    return {
      rejected,
      ...(inMs < TICK_MS ? { tickInMs: inMs } : {}),
      ...(failing === undefined ? {} : { failing }),
    };
  }

  function isBacklog(offer: Offered | undefined): boolean {
    const newestMs = Date.parse(offer?.committedAt.at(-1) ?? "");
    return offer?.again === false && clock.now() - newestMs > BACKLOG_MS;
  }

  /** Changes are the truth once they are on the disk. */
  async function take(next: IncidentLedger, before: IncidentLedger): Promise<void> {
    const changed = [...next].filter(([key, held]) => before.get(key) !== held);
    await memory.put(new Map(changed));
    book = next;
    for (const [key, { into }] of changed) {
      agenda.change(key);
      // The text of a group lists its members.
      const intoBefore = before.get(key)?.into ?? null;
      for (const group of [into, intoBefore]) if (group !== null) agenda.change(group);
    }
  }

  /** By source and id. */
  async function gatewaysAway(): Promise<ReadonlySet<string>> {
    const gateways = await picture.inventory("gateway");
    const away = gateways.filter(({ value, isThere }) => isThere && value.online !== true);
    return new Set(away.map(({ source, value }) => `${source} ${value.id}`));
  }

  /** Gateways that are back although no event said so. */
  async function lookAtGateways(all: IncidentLedger): Promise<void> {
    if (openGateways.size === 0 || clock.monotonic() - gatewaysLookedMs < GATEWAY_LOOK_MS) return;
    gatewaysLookedMs = clock.monotonic();
    const offline = await gatewaysAway();
    const isBack = ({ source, gateway }: StoredIncident) =>
      gateway !== null && !offline.has(`${source} ${gateway.id}`);
    const back = [...openGateways].flatMap((key) => all.get(key) ?? []).filter(isBack);
    if (back.length === 0) return;
    const next = new Map(all);
    for (const { source, gateway, changeId } of back) {
      const time = isoUtc(clock.now());
      const at = { position: Number.POSITIVE_INFINITY, time, changeId, nowMs: onwardMs() };
      folding.gatewayBack(next, source, gateway?.id ?? "", at);
    }
    await take(next, all);
  }

  /** Ends the absences whose gateway has been back for long enough, or whose alarms have all ended. */
  async function settleGateways(all: IncidentLedger): Promise<void> {
    const settling = [...openGateways].filter((key) => all.get(key)?.settling !== undefined);
    if (settling.length === 0) return;
    const next = new Map(all);
    folding.settle(next, settling, onwardMs());
    await take(next, all);
  }

  /** A silence that begins, ends or is new, and a clock that was set, change when incidents are sent. */
  async function agree(): Promise<void> {
    const isNew = timing.agree(await picture.silences());
    const aheadMs = clock.now() - clock.monotonic();
    if (!isNew && Math.abs(aheadMs - wallAheadMs) < CLOCK_STEP_MS) return;
    wallAheadMs = aheadMs;
    for (const key of unopened) agenda.change(key);
  }

  return {
    maxBatch: MAX_BATCH,
    ...(receiver.farEnd === undefined ? {} : { farEnd: receiver.farEnd }),
    ...(receiver.lastStepMs === undefined ? {} : { lastStepMs: receiver.lastStepMs }),

    async open(signal) {
      signal.throwIfAborted();
      await open();
    },

    async write(batch, signal, _accepted, offer) {
      signal.throwIfAborted();
      return write(batch, signal, offer);
    },

    waiting: () => agenda.size() - agenda.size(AFTER_ALL) + retries.size(),

    async tick(signal) {
      await agree();
      await lookAtGateways(await open());
      await settleGateways(await open());
      await send(signal);
      // An event that is in no place of the log cannot be a dead letter; the log has a line on it.
      const refused = refusals.filter(({ position }) => position > 0);
      refusals = [];
      return { ...report(), ...(refused.length === 0 ? {} : { refused }) };
    },

    test: (say, signal) => tryOut({ receiver, told: toldOf, clock, say }, signal),
    probe: (signal) => receiver.probe(signal),
    close: () => receiver.dispose(),
  };
}

/** The engine's deadline ended the call, as opposed to a stop. */
function isTooLate({ aborted, reason }: AbortSignal): boolean {
  return aborted && reason instanceof Retryable;
}

/** What has become of the alarms of a batch that was delivered before. */
async function lookUp(picture: BuildingView, batch: readonly Event[]) {
  const active = new Set<string>();
  for (const { source, id } of alarmsIn(batch)) {
    const now = await picture.alarm(source, id);
    if (now?.state === "active") active.add(`${source} ${now.episode}`);
  }
  return (source: string, { episode }: AlarmFact) => active.has(`${source} ${episode}`);
}
