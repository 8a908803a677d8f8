import type { Sink } from "../../core/connector.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import type { Log } from "../../core/runtime/log.ts";
import { ENDED_EARLY, rejectOnAbort, sleepFor } from "../../core/runtime/waiting.ts";
import type { Outbox, Store } from "../store/store.ts";

const CHECK_EVERY_MS = 30_000;
/** First interval after a server that stated its instance before is silent; it doubles. */
const SILENT_CHECK_MS = 5_000;
const CHECK_TIMEOUT_MS = 5_000;
const POINTS_PER_WINDOW = 60;
/** Most points and ranges that are stored for a server that no longer responds. */
const MAX_CURSOR_POINTS = 500;
/** Positions sent again at a smaller distance count as one range. */
const MAX_RANGE_DISTANCE = 1_000;
const SERVER_INSTANCE_SET = "sink-life";

/** Cursors of a sink at one time; `urgent` is absent in older states. */
interface CursorPoint {
  readonly atMs: number;
  readonly position: number;
  readonly urgent?: number;
}

/** Stored state. `atMs` is measured time of all runs, in milliseconds. */
interface ServerInstance {
  readonly nowMs: number;
  readonly life: string | null;
  readonly seenMs: number;
  readonly points: readonly CursorPoint[];
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
  readonly sink: Pick<Sink, "detectRestart">;
  /** Events delivered within this time before a restart are sent again, in milliseconds; 0 disables the check. */
  readonly windowMs: number;
  readonly outbox: Pick<Outbox, "register" | "replayBetween">;
  readonly store: Pick<Store, "document" | "commit">;
  readonly clock: Clock;
  readonly log: Log;
  readonly onRestart: (redelivered: number) => void;
}) {
  const { name, sink, windowMs, outbox, store, clock, log } = options;
  const pointEveryMs = Math.max(CHECK_EVERY_MS, windowMs / POINTS_PER_WINDOW);
  const beganMs = clock.monotonic();
  let cached: ServerInstance | null = null;
  let ranBeforeMs = 0;
  let checkedAtMs = Number.NEGATIVE_INFINITY;
  let silentChecks = 0;

  const checkEveryMs = () =>
    silentChecks === 0 ? CHECK_EVERY_MS : Math.min(CHECK_EVERY_MS, SILENT_CHECK_MS * 2 ** (silentChecks - 1));
  const nowMs = () => ranBeforeMs + clock.monotonic() - beganMs;

  async function load(): Promise<ServerInstance> {
    if (cached !== null) return cached;
    const kept = await store.document<ServerInstance>(SERVER_INSTANCE_SET, name);
    ranBeforeMs = kept?.nowMs ?? 0;
    const first = { atMs: 0, ...(await cursor()) };
    cached = kept ?? { nowMs: 0, life: null, seenMs: 0, points: [first], again: [] };
    return cached;
  }

  async function save(life: ServerInstance): Promise<void> {
    const sinceMs = life.seenMs - windowMs;
    // The last point before the window stays, because the window may begin right after it.
    const from = life.points.findLastIndex(({ atMs }) => atMs <= sinceMs);
    const kept: ServerInstance = {
      ...life,
      nowMs: nowMs(),
      points: thinOutPoints(life.points.slice(Math.max(0, from))),
      again: life.again.filter(({ atMs }) => atMs > sinceMs).slice(-MAX_CURSOR_POINTS),
    };
    await store.commit({ documents: [{ set: SERVER_INSTANCE_SET, put: [[name, kept]] }] });
    cached = kept;
  }

  async function cursor(): Promise<{ readonly position: number; readonly urgent: number }> {
    const { position, urgent } = await outbox.register(name, "now");
    return { position, urgent };
  }

  async function queryServerInstance(before: string | null, signal: AbortSignal) {
    const limit = new AbortController();
    const answered = new AbortController();
    const limited = AbortSignal.any([signal, limit.signal]);
    const timer = sleepFor(clock, CHECK_TIMEOUT_MS, answered.signal, signal).then((isOver) => {
      if (isOver) limit.abort(new Error("no answer in time"));
    });
    try {
      return (await rejectOnAbort(sink.detectRestart?.(before, limited) ?? Promise.resolve(null), limited)) ?? null;
    } catch (error) {
      log.debug({ sink: name, err: error }, "the server does not state whether it was restarted");
      return null;
    } finally {
      answered.abort(ENDED_EARLY);
      await timer;
    }
  }

  async function markRedeliveries({ points, again }: ServerInstance, sinceMs: number): Promise<number> {
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

  async function checkNow(signal: AbortSignal): Promise<void> {
    const life = await load();
    const response = await queryServerInstance(life.life, signal);
    if (signal.aborted) return;
    silentChecks = response === null && life.life !== null ? silentChecks + 1 : 0;
    const points = addPoint(life.points, { atMs: nowMs(), ...(await cursor()) }, pointEveryMs);
    if (response === null) return life.life === null ? undefined : save({ ...life, points });
    if (response.isNew) {
      const redelivered = await markRedeliveries(life, life.seenMs - windowMs);
      log.warn(
        { sink: name, again: redelivered, windowMs },
        "The far end was restarted. What it had taken shortly before, and may have lost, is sent again.",
      );
      options.onRestart(redelivered);
    }
    return save({ ...life, points, life: response.instanceId, seenMs: nowMs() });
  }

  const isChecked = sink.detectRestart !== undefined && windowMs > 0;
  const dueInMs = () => (isChecked ? checkedAtMs + checkEveryMs() - clock.monotonic() : Number.POSITIVE_INFINITY);

  return {
    dueInMs,
    async checkIfDue(is: "opened" | "open", signal: AbortSignal): Promise<void> {
      if (!isChecked || (is === "open" && dueInMs() > 0)) return;
      if (is === "opened") silentChecks = 0;
      checkedAtMs = clock.monotonic();
      try {
        await checkNow(signal);
      } catch (error) {
        // The stored instance is still the old one, so the next check repeats this.
        log.warn({ sink: name, err: error }, "the check for a restart of the server failed");
      }
    },
    async deliveredAgain(positions: readonly number[]): Promise<void> {
      const [first, last] = [positions[0], positions.at(-1)];
      if (!isChecked || first === undefined || last === undefined) return;
      const life = await load();
      const before = life.again.at(-1);
      const atMs = nowMs();
      const continuesRange =
        before !== undefined &&
        atMs - before.atMs < CHECK_EVERY_MS &&
        first > before.last &&
        first - before.last <= MAX_RANGE_DISTANCE;
      const redelivered = continuesRange
        ? [...life.again.slice(0, -1), { ...before, last }]
        : [...life.again, { atMs, first, last }];
      await save({ ...life, again: redelivered });
    },
  };
}

/** Removes every second of too many points, never the first, so that only more events are sent again. */
function thinOutPoints(points: ServerInstance["points"]): ServerInstance["points"] {
  return points.length <= MAX_CURSOR_POINTS ? points : points.filter((_, index) => index % 2 === 0);
}

function addPoint(points: ServerInstance["points"], point: CursorPoint, everyMs: number): ServerInstance["points"] {
  const last = points.at(-1);
  const isSame = last?.position === point.position && (last.urgent ?? 0) === point.urgent;
  if (last !== undefined && (isSame || point.atMs - last.atMs < everyMs)) return points;
  return [...points, point];
}
