import type { Sink } from "../../core/connector.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import type { Log } from "../../core/runtime/log.ts";
import { rejectOnAbort, sleepFor, WAIT_ENDED_EARLY } from "../../core/runtime/waiting.ts";
import type { Outbox, Store } from "../store/store.ts";

const CHECK_INTERVAL_MS = 30_000;
/** First interval of checks after a known server stopped answering; each later interval is twice as long. */
const FIRST_RECHECK_MS = 5_000;
const CHECK_TIMEOUT_MS = 5_000;
const CURSOR_POINTS_PER_WINDOW = 60;
const MAX_CURSOR_POINTS = 500;
const MAX_MERGED_POSITION_GAP = 1_000;
const SERVER_INSTANCE_SET = "sink-life";

/** Positions of a sink's cursors at one time; state that older versions stored has no `urgent`. */
interface CursorPoint {
  readonly atMs: number;
  readonly position: number;
  readonly urgent?: number;
}

/** Stored state of the watch. Every `atMs` is the total running time of all worker runs, not a wall-clock time. */
interface RestartState {
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
 * The window counts times of delivery, not of commit, and only while the worker runs.
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
  const pointIntervalMs = Math.max(CHECK_INTERVAL_MS, windowMs / CURSOR_POINTS_PER_WINDOW);
  const watchBeganMs = clock.monotonic();
  let cachedState: RestartState | null = null;
  let earlierRunsMs = 0;
  let checkedAtMs = Number.NEGATIVE_INFINITY;
  let failedChecks = 0;

  const checkEveryMs = () =>
    failedChecks === 0 ? CHECK_INTERVAL_MS : Math.min(CHECK_INTERVAL_MS, FIRST_RECHECK_MS * 2 ** (failedChecks - 1));
  const nowMs = () => earlierRunsMs + clock.monotonic() - watchBeganMs;

  async function loadRestartState(): Promise<RestartState> {
    if (cachedState !== null) return cachedState;
    const storedState = await store.document<RestartState>(SERVER_INSTANCE_SET, name);
    earlierRunsMs = storedState?.nowMs ?? 0;
    const firstCursorPoint = { atMs: 0, ...(await readSinkCursor()) };
    cachedState = storedState ?? { nowMs: 0, life: null, seenMs: 0, points: [firstCursorPoint], again: [] };
    return cachedState;
  }

  async function saveState(state: RestartState): Promise<void> {
    const windowStartMs = state.seenMs - windowMs;
    // Keep the last cursor position before the window, because the window may begin right after it.
    const firstKeptPointIndex = state.points.findLastIndex(({ atMs }) => atMs <= windowStartMs);
    const keptPoints = state.points.slice(Math.max(0, firstKeptPointIndex));
    const savedState: RestartState = {
      ...state,
      nowMs: nowMs(),
      // Drop every second cursor position when there are too many: a sink then gets more events again, never fewer.
      points: keptPoints.length <= MAX_CURSOR_POINTS ? keptPoints : keptPoints.filter((_, index) => index % 2 === 0),
      again: state.again.filter(({ atMs }) => atMs > windowStartMs).slice(-MAX_CURSOR_POINTS),
    };
    await store.commit({ documents: [{ set: SERVER_INSTANCE_SET, put: [[name, savedState]] }] });
    cachedState = savedState;
  }

  async function readSinkCursor(): Promise<{ readonly position: number; readonly urgent: number }> {
    const { position, urgent } = await outbox.register(name, "now");
    return { position, urgent };
  }

  async function queryServerInstance(lastId: string | null, signal: AbortSignal) {
    const checkTimeoutController = new AbortController();
    const queryEndController = new AbortController();
    const anyAbort = AbortSignal.any([signal, checkTimeoutController.signal]);
    const timeoutTimer = sleepFor(clock, CHECK_TIMEOUT_MS, queryEndController.signal, signal).then((isTimeUp) => {
      if (isTimeUp) checkTimeoutController.abort(new Error("no answer in time"));
    });
    try {
      return (await rejectOnAbort(sink.detectRestart?.(lastId, anyAbort) ?? Promise.resolve(null), anyAbort)) ?? null;
    } catch (error) {
      log.debug({ sink: name, err: error }, "the server does not state whether it was restarted");
      return null;
    } finally {
      queryEndController.abort(WAIT_ENDED_EARLY);
      await timeoutTimer;
    }
  }

  async function markRedeliveries({ points, again }: RestartState, sinceMs: number): Promise<number> {
    const startPoint = points.findLast(({ atMs }) => atMs <= sinceMs) ?? points[0];
    let markedCount = 0;
    if (startPoint !== undefined) {
      const currentSinkCursor = await readSinkCursor();
      const lastDeliveredPosition = Math.max(currentSinkCursor.position, currentSinkCursor.urgent);
      markedCount += await outbox.replayBetween(name, startPoint.position, lastDeliveredPosition, startPoint.urgent);
    }
    for (const { atMs, first, last } of again) {
      if (atMs > sinceMs) markedCount += await outbox.replayBetween(name, first - 1, last);
    }
    return markedCount;
  }

  async function checkServerRestart(signal: AbortSignal): Promise<void> {
    const state = await loadRestartState();
    const serverCheck = await queryServerInstance(state.life, signal);
    if (signal.aborted) return;
    failedChecks = serverCheck === null && state.life !== null ? failedChecks + 1 : 0;
    const points = addCursorPoint(state.points, { atMs: nowMs(), ...(await readSinkCursor()) }, pointIntervalMs);
    if (serverCheck === null) return state.life === null ? undefined : saveState({ ...state, points });
    if (serverCheck.isNew) {
      const redeliveredEventCount = await markRedeliveries(state, state.seenMs - windowMs);
      log.warn(
        { sink: name, again: redeliveredEventCount, windowMs },
        "The server was restarted. Events that it had acknowledged shortly before and may have lost are sent again.",
      );
      options.onRestart(redeliveredEventCount);
    }
    return saveState({ ...state, points, life: serverCheck.instanceId, seenMs: nowMs() });
  }

  const canCheck = sink.detectRestart !== undefined && windowMs > 0;
  const dueInMs = () => (canCheck ? checkedAtMs + checkEveryMs() - clock.monotonic() : Number.POSITIVE_INFINITY);

  return {
    dueInMs,
    async checkIfDue(connectionState: "opened" | "open", signal: AbortSignal): Promise<void> {
      if (!canCheck || (connectionState === "open" && dueInMs() > 0)) return;
      if (connectionState === "opened") failedChecks = 0;
      checkedAtMs = clock.monotonic();
      try {
        await checkServerRestart(signal);
      } catch (error) {
        log.warn({ sink: name, err: error }, "the check for a restart of the server failed");
      }
    },
    async recordRedelivery(positions: readonly number[]): Promise<void> {
      const [first, last] = [positions[0], positions.at(-1)];
      if (!canCheck || first === undefined || last === undefined) return;
      const state = await loadRestartState();
      const lastRedeliveredRange = state.again.at(-1);
      const deliveredAtMs = nowMs();
      const continuesLastRange =
        lastRedeliveredRange !== undefined &&
        deliveredAtMs - lastRedeliveredRange.atMs < CHECK_INTERVAL_MS &&
        first > lastRedeliveredRange.last &&
        first - lastRedeliveredRange.last <= MAX_MERGED_POSITION_GAP;
      const redeliveredRanges = continuesLastRange
        ? [...state.again.slice(0, -1), { ...lastRedeliveredRange, last }]
        : [...state.again, { atMs: deliveredAtMs, first, last }];
      await saveState({ ...state, again: redeliveredRanges });
    },
  };
}

function addCursorPoint(points: RestartState["points"], point: CursorPoint, everyMs: number): RestartState["points"] {
  const lastCursorPoint = points.at(-1);
  const isSameCursor = lastCursorPoint?.position === point.position && (lastCursorPoint.urgent ?? 0) === point.urgent;
  if (lastCursorPoint !== undefined && (isSameCursor || point.atMs - lastCursorPoint.atMs < everyMs)) return points;
  return [...points, point];
}
