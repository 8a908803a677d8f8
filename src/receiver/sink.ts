import { isoUtc } from "../clock.ts";
import type { ConnectorContext, Offered, Picture, Receipt, Sink } from "../connector.ts";
import { meaningOf, Rejected, sentence } from "../errors.ts";
import type { AlarmFact, Event } from "../event.ts";
import { absorb, alarmsIn } from "./absorb.ts";
import type { ReceiverConfig } from "./config.ts";
import { createFolding } from "./folding.ts";
import { type Book, type HeldIncident, incidentOf, isOver, keyOf, membersOf, noneAhead } from "./held.ts";
import { createOnward } from "./onward.ts";
import type { Receiver, Told } from "./receiver.ts";
import { createTeller, entry } from "./tell.ts";
import { textOf } from "./text.ts";
import { createTiming } from "./timing.ts";
import { tryOut } from "./try-out.ts";
import { createWithCurves } from "./with-curves.ts";
import { vocabulary } from "./words.ts";

/** Events that one write takes at most: what several of them say of one alarm is said once. */
const MAX_BATCH = 500;
/** A thing with a list is not edited more often than this, in milliseconds, however fast the list changes. */
const LIST_EDIT_MS = 30_000;
/** What waits is looked at this often, in milliseconds. */
const TICK_MS = 5_000;
/** Whether gateways are back is looked at this often, in milliseconds, should the sink's filter leave that event out. */
const GATEWAY_LOOK_MS = 60_000;
/** What was said is remembered for so long after its end, or after it went out of sight, in milliseconds. */
const REMEMBER_MS = 30 * 86_400_000;

/**
 * Makes a sink of a receiver: one thing there for one alarm.
 *
 *   events ─► absorb: the book says what is true ─► tell: the receiver is brought up to it ─► remembered, settled
 *                       folding · timing                what is new of it, however many events made it
 *
 * An event is accepted when what it says is in the book on the disk, and the receiver has taken what follows from it or
 * has to wait for it by a rule of the configuration.
 */
export function createReceiverSink(
  receiver: Receiver,
  config: ReceiverConfig,
  context: ConnectorContext,
): Sink {
  const { clock, log, memory, picture } = context;
  const onwardMs = createOnward(clock);
  const timing = createTiming(config, { clock, onwardMs, zoneOf: picture.timeZone });
  const words = vocabulary(config.language, config.words);
  let book: Book | null = null;
  let gatewayNames: ReadonlyMap<string, string> = new Map();
  let gatewaysLookedMs = Number.NEGATIVE_INFINITY;
  const folding = createFolding(config.fold, (source, id) => gatewayNames.get(`${source} ${id}`) ?? id);

  const toldOf = (held: HeldIncident): Told => {
    const incident = incidentOf(keyOf(held), held, book ?? new Map(), config.status_url);
    const text = textOf(incident, words, picture.timeZone(held.source), held.curves?.lines);
    return { ...incident, text };
  };
  const withCurves = createWithCurves(config, words, context);
  const teller = createTeller({
    receiver,
    told: toldOf,
    wallMs: clock.now,
    onwardMs,
    async remember(held) {
      await memory.put(entry(keyOf(held), held));
      book?.set(keyOf(held), held);
    },
  });

  async function open(): Promise<Book> {
    if (book !== null) return book;
    const remembered = new Map(await memory.all<HeldIncident>());
    const nowMs = onwardMs();
    const next = new Map([...remembered].map(([key, held]) => [key, noneAhead(held, nowMs)]));
    await take(next, remembered);
    return next;
  }

  async function nameGateways(): Promise<void> {
    const gateways = await picture.inventory("gateway");
    gatewayNames = new Map(gateways.map(({ source, value }) => [`${source} ${value.id}`, value.displayName]));
  }

  /** Whether a rule keeps it from being opened now, or for ever. */
  function waits(held: HeldIncident): boolean {
    return held.into !== null || timing.keepsBack(held, () => membersOf(book ?? new Map(), keyOf(held)));
  }

  /** Whether there is something to say of it now. */
  function isDue(held: HeldIncident): boolean {
    if (teller.isLookedForLater(held)) return false;
    // What may be there already is closed at its end, even if it need not have been told.
    if (held.told === null) return !waits(held) || (isOver(held) && held.openingMs !== null);
    if (!teller.isBehind(held)) return false;
    const isList = held.kind === "gateway" || held.kind === "storm";
    return !isList || isOver(held) || onwardMs() - held.told.atMs >= LIST_EDIT_MS;
  }

  async function tell(key: string, again: boolean, signal: AbortSignal): Promise<void> {
    const held = book?.get(key);
    if (held !== undefined) await teller.tell(await withCurves(held), again, signal);
  }

  /** Says what there is to say; what the receiver refuses for good stops nobody else. */
  async function tellAll(
    keys: Iterable<string>,
    signal: AbortSignal,
  ): Promise<ReadonlyMap<string, Rejected>> {
    const refused = new Map<string, Rejected>();
    for (const key of keys) {
      const held = book?.get(key);
      if (held === undefined || !isDue(held)) continue;
      signal.throwIfAborted();
      try {
        await tell(key, false, signal);
      } catch (error) {
        const failure = meaningOf(error);
        if (!(failure instanceof Rejected)) throw error;
        refused.set(key, failure);
        log.warn(
          { incident: key, alarm: held.alarm?.id, err: failure },
          "the receiver refuses what it is told",
        );
        const now = book?.get(key) ?? held;
        const known = { ...now, refused: teller.digestOf(now) };
        await memory.put(entry(key, known));
        book?.set(key, known);
      }
    }
    return refused;
  }

  async function write(
    batch: readonly Event[],
    signal: AbortSignal,
    offer: Offered | undefined,
  ): Promise<Receipt> {
    const { positions = batch.map((_, index) => index + 1), again = false } = offer ?? {};
    // A copy: what could not be written down has not happened.
    const next = new Map(await open());
    const before = new Map(next);
    const isActive = again ? await lookUp(picture, batch) : () => true;
    const away = again ? await gatewaysAway() : null;
    const isAway = (source: string, id: string) => away === null || away.has(`${source} ${id}`);
    if (batch.some((event) => mayFold(event))) await nameGateways();
    timing.agree(await picture.silences());
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
    // First on the disk, so that what is said of it later is never said of something that is forgotten.
    await take(next, before);
    const refused = await tellAll(concerned.keys(), signal);
    // A dead letter each: nobody else waits for what is refused, and the next change tries again.
    return {
      rejected: [...refused].map(([key, failure]) => ({
        index: concerned.get(key) ?? 0,
        reason: sentence(failure),
      })),
    };
  }

  /** What has changed is the truth once it is on the disk. */
  async function take(next: Book, before: Book): Promise<void> {
    await memory.put(new Map([...next].filter(([key, held]) => before.get(key) !== held)));
    book = next;
  }

  /** By source and id. */
  async function gatewaysAway(): Promise<ReadonlySet<string>> {
    const gateways = await picture.inventory("gateway");
    const away = gateways.filter(({ value, isThere }) => isThere && value.online !== true);
    return new Set(away.map(({ source, value }) => `${source} ${value.id}`));
  }

  /** Gateways that are back although no event said so. */
  async function lookAtGateways(all: Book): Promise<void> {
    const away = [...all.values()].filter((held) => held.kind === "gateway" && !isOver(held));
    if (away.length === 0 || clock.monotonic() - gatewaysLookedMs < GATEWAY_LOOK_MS) return;
    gatewaysLookedMs = clock.monotonic();
    const offline = await gatewaysAway();
    const next = new Map(all);
    for (const { source, gateway, changeId } of away) {
      if (gateway === null || offline.has(`${source} ${gateway.id}`)) continue;
      const time = isoUtc(clock.now());
      const back = { position: Number.POSITIVE_INFINITY, time, changeId, nowMs: onwardMs() };
      folding.gatewayBack(next, source, gateway.id, back);
    }
    await take(next, all);
  }

  async function forget(all: Book): Promise<void> {
    const old = [...all].filter(
      ([, held]) =>
        // An alarm that is active for months is still to be closed.
        (onwardMs() - held.changedMs > REMEMBER_MS && (isOver(held) || held.status === "unknown")) ||
        // Nobody was told of it and nobody will be.
        (isOver(held) && held.told === null && held.openingMs === null && held.into === null && waits(held)),
    );
    if (old.length === 0) return;
    await memory.put(new Map(old.map(([key]) => [key, null])));
    for (const [key] of old) all.delete(key);
  }

  function isToRepeat({ told: last, status, changedMs }: HeldIncident): boolean {
    const { repeatMs, repeatClosedMs = 0 } = receiver;
    if (repeatMs === undefined || last === null || onwardMs() - last.atMs < repeatMs) return false;
    return status !== "resolved" || onwardMs() - changedMs < repeatClosedMs;
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

    async tick(signal) {
      timing.agree(await picture.silences());
      await lookAtGateways(await open());
      const all = await open();
      const due = [...all].filter(
        ([, held]) => held.refused === undefined || held.refused !== teller.digestOf(held),
      );
      await tellAll(
        due.map(([key]) => key),
        signal,
      );
      for (const [key, held] of [...all]) {
        signal.throwIfAborted();
        if (isToRepeat(held)) await tell(key, true, signal);
      }
      await forget(all);
      log.trace({ incidents: all.size }, "what waits was looked at");
      return { inMs: TICK_MS };
    },

    test: (say, signal) => tryOut({ receiver, told: toldOf, clock, say }, signal),
    probe: (signal) => receiver.probe(signal),
    close: () => receiver.dispose(),
  };
}

function mayFold(event: Event): boolean {
  return (event.data as Partial<AlarmFact>).behindGateway != null;
}

/** What has become of the alarms of a batch that was delivered before. */
async function lookUp(picture: Picture, batch: readonly Event[]) {
  const active = new Set<string>();
  for (const { source, id } of alarmsIn(batch)) {
    const now = await picture.alarm(source, id);
    if (now?.state === "active") active.add(`${source} ${now.episode}`);
  }
  return (source: string, { episode }: AlarmFact) => active.has(`${source} ${episode}`);
}
