import type { Sink } from "../../core/connector.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import type { Log } from "../../core/runtime/log.ts";
import { abortable, sleepFor, WOKEN } from "../../core/runtime/waiting.ts";
import type { Outbox, Store } from "../store/store.ts";

const LOOK_EVERY_MS = 30_000;
/** First interval after a server that stated its instance before is silent; it doubles. */
const LOOK_SOON_MS = 5_000;
const LOOK_WITHIN_MS = 5_000;
const POINTS = 60;
/** Most points and ranges that are stored for a server that no longer responds. */
const MOST = 500;
/** Positions sent again at a smaller distance count as one range. */
const CLOSE = 1_000;
const LIVES = "sink-life";

/** Cursors of a sink at one time; `urgent` is absent in older states. */
interface Point {
  readonly atMs: number;
  readonly position: number;
  readonly urgent?: number;
}

/** Stored state. `atMs` is measured time of all runs, in milliseconds. */
interface StoredLife {
  readonly nowMs: number;
  readonly life: string | null;
  readonly seenMs: number;
  readonly points: readonly Point[];
  readonly again: readonly { readonly atMs: number; readonly first: number; readonly last: number }[];
}

/**
 * Detects a restart of a server and sends again what it may have lost: Mosquitto by default never writes to disk.
 *
 *   delivered:  ──●────●────●────●────●──┊ restart ┊──✗ noticed
 *   alive:      ─────────────────────seen┊
 *   sent again:      ◄── window ────────►●●●           delivered since `seen - window`
 *
 * The time of delivery counts, not the time of the commit. Times are measured while the worker runs.
 */
export function createRestartWatch(options: {
  readonly name: string;
  readonly sink: Pick<Sink, "look">;
  /** Events delivered within this time before a restart are sent again, in milliseconds; 0 disables the check. */
  readonly windowMs: number;
  readonly outbox: Pick<Outbox, "register" | "replayBetween">;
  readonly store: Pick<Store, "document" | "commit">;
  readonly clock: Clock;
  readonly log: Log;
  readonly onRestart: (again: number) => void;
}) {
  const { name, sink, windowMs, outbox, store, clock, log } = options;
  const pointEveryMs = Math.max(LOOK_EVERY_MS, windowMs / POINTS);
  const beganMs = clock.monotonic();
  let held: StoredLife | null = null;
  let ranBeforeMs = 0;
  let lookedAtMs = Number.NEGATIVE_INFINITY;
  let silences = 0;

  const lookEveryMs = () =>
    silences === 0 ? LOOK_EVERY_MS : Math.min(LOOK_EVERY_MS, LOOK_SOON_MS * 2 ** (silences - 1));
  const nowMs = () => ranBeforeMs + clock.monotonic() - beganMs;

  async function load(): Promise<StoredLife> {
    if (held !== null) return held;
    const kept = await store.document<StoredLife>(LIVES, name);
    ranBeforeMs = kept?.nowMs ?? 0;
    const first = { atMs: 0, ...(await cursor()) };
    held = kept ?? { nowMs: 0, life: null, seenMs: 0, points: [first], again: [] };
    return held;
  }

  async function save(life: StoredLife): Promise<void> {
    const sinceMs = life.seenMs - windowMs;
    // The last point before the window stays, because the window may begin right after it.
    const from = life.points.findLastIndex(({ atMs }) => atMs <= sinceMs);
    const kept: StoredLife = {
      ...life,
      nowMs: nowMs(),
      points: thinned(life.points.slice(Math.max(0, from))),
      again: life.again.filter(({ atMs }) => atMs > sinceMs).slice(-MOST),
    };
    await store.commit({ documents: [{ set: LIVES, put: [[name, kept]] }] });
    held = kept;
  }

  async function cursor(): Promise<{ readonly position: number; readonly urgent: number }> {
    const { position, urgent } = await outbox.register(name, "now");
    return { position, urgent };
  }

  async function ask(before: string | null, signal: AbortSignal) {
    const limit = new AbortController();
    const answered = new AbortController();
    const limited = AbortSignal.any([signal, limit.signal]);
    const timer = sleepFor(clock, LOOK_WITHIN_MS, answered.signal, signal).then((whole) => {
      if (whole) limit.abort(new Error("no answer in time"));
    });
    try {
      return (await abortable(sink.look?.(before, limited) ?? Promise.resolve(null), limited)) ?? null;
    } catch (error) {
      log.debug({ sink: name, err: error }, "the server does not state whether it was restarted");
      return null;
    } finally {
      answered.abort(WOKEN);
      await timer;
    }
  }

  async function sendAgain({ points, again }: StoredLife, sinceMs: number): Promise<number> {
    const from = points.findLast(({ atMs }) => atMs <= sinceMs) ?? points[0];
    let marked = 0;
    if (from !== undefined) {
      const now = await cursor();
      const through = Math.max(now.position, now.urgent);
      marked += await outbox.replayBetween(name, from.position, through, from.urgent);
    }
    for (const { atMs, first, last } of again) {
      if (atMs > sinceMs) marked += await outbox.replayBetween(name, first - 1, last);
    }
    return marked;
  }

  async function lookNow(signal: AbortSignal): Promise<void> {
    const life = await load();
    const said = await ask(life.life, signal);
    if (signal.aborted) return;
    silences = said === null && life.life !== null ? silences + 1 : 0;
    const points = withPoint(life.points, { atMs: nowMs(), ...(await cursor()) }, pointEveryMs);
    if (said === null) return life.life === null ? undefined : save({ ...life, points });
    if (said.isNew) {
      const again = await sendAgain(life, life.seenMs - windowMs);
      log.warn(
        { sink: name, again, windowMs },
        "The far end was restarted. What it had taken shortly before, and may have lost, is sent again.",
      );
      options.onRestart(again);
    }
    return save({ ...life, points, life: said.life, seenMs: nowMs() });
  }

  const isAsked = sink.look !== undefined && windowMs > 0;
  const dueInMs = () => (isAsked ? lookedAtMs + lookEveryMs() - clock.monotonic() : Number.POSITIVE_INFINITY);

  return {
    dueInMs,
    async look(is: "opened" | "open", signal: AbortSignal): Promise<void> {
      if (!isAsked || (is === "open" && dueInMs() > 0)) return;
      if (is === "opened") silences = 0;
      lookedAtMs = clock.monotonic();
      try {
        await lookNow(signal);
      } catch (error) {
        // The stored instance is still the old one, so the next check repeats this.
        log.warn({ sink: name, err: error }, "the check for a restart of the server failed");
      }
    },
    async deliveredAgain(positions: readonly number[]): Promise<void> {
      const [first, last] = [positions[0], positions.at(-1)];
      if (!isAsked || first === undefined || last === undefined) return;
      const life = await load();
      const before = life.again.at(-1);
      const atMs = nowMs();
      const isNext =
        before !== undefined &&
        atMs - before.atMs < LOOK_EVERY_MS &&
        first > before.last &&
        first - before.last <= CLOSE;
      const again = isNext ? [...life.again.slice(0, -1), { ...before, last }] : [...life.again, { atMs, first, last }];
      await save({ ...life, again });
    },
  };
}

/** Removes every second of too many points, never the first, so that only more events are sent again. */
function thinned(points: StoredLife["points"]): StoredLife["points"] {
  return points.length <= MOST ? points : points.filter((_, index) => index % 2 === 0);
}

function withPoint(points: StoredLife["points"], point: Point, everyMs: number): StoredLife["points"] {
  const last = points.at(-1);
  const isSame = last?.position === point.position && (last.urgent ?? 0) === point.urgent;
  if (last !== undefined && (isSame || point.atMs - last.atMs < everyMs)) return points;
  return [...points, point];
}
