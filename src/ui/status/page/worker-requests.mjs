import { useEffect, useRef, useState } from "/htm.mjs";
import { t } from "/language.mjs";
import { batchUpdate, duringRequest, untilBeat } from "/worker-clock.mjs";

/** A working worker responds in milliseconds; a suspended one accepts requests and never responds. */
const REQUEST_TIMEOUT_MS = 5000;
/** Age from which a report with an unchanged time is stale, in milliseconds. */
const STALE_REPORT_AGE_MS = 10_000;
/** Latest responses by path, so that a return to a view shows its last content at once. */
const MOST_CACHED = 20;
const cachedAnswers = new Map();

async function getText(path) {
  const response = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(REQUEST_TIMEOUT_MS) });
  const text = await response.text();
  if (response.ok) return text;
  let body = {};
  try {
    body = JSON.parse(text) ?? {};
  } catch {
    // A proxy sent another format.
  }
  const error = new Error(body.message ?? t("The worker answered {status}.", { status: response.status }));
  error.status = response.status;
  error.holder = body.holder ?? null;
  throw error;
}

/**
 * Polls a path, one request at a time, and returns `{ data, failed, atMs, of, missing, holder, heard, again }`. `data` stays while the
 * worker is away. `atMs`: when the response last changed, `heard.current`: when the last response came, both by the browser's clock.
 * `of`: the path of `data`. `again` requests at once, after a change. `missing`: the object is unknown; `holder`: the member of the
 * fleet that has it. A path of null sends no requests.
 */
export function usePolled(path, start, everyMs) {
  const noAnswer = { of: null, data: start, failed: null, atMs: null };
  const [answer, setAnswer] = useState(() => cachedAnswers.get(path) ?? noAnswer);
  const request = useRef(async () => {});
  const heard = useRef(answer.atMs);
  useEffect(() => {
    if (path === null) return;
    let timer;
    let isUnmounted = false;
    let lastText = null;
    const succeed = (text) => {
      heard.current = Date.now();
      // An equal response needs no drawing.
      if (text === lastText) return;
      const isFirst = lastText === null;
      lastText = text;
      const nextAnswer = { of: path, data: JSON.parse(text), failed: null, atMs: heard.current };
      cachedAnswers.delete(path);
      cachedAnswers.set(path, nextAnswer);
      if (cachedAnswers.size > MOST_CACHED) cachedAnswers.delete(cachedAnswers.keys().next().value);
      if (isFirst) setAnswer(nextAnswer);
      else batchUpdate(() => !isUnmounted && lastText === text && setAnswer(nextAnswer));
    };
    const reportFailure = (error) => {
      lastText = null;
      const failed = String(error.message ?? error);
      setAnswer((old) => ({ ...old, failed, missing: error.status === 404, holder: error.holder }));
    };
    const poll = async () => {
      clearTimeout(timer);
      if (!document.hidden)
        await duringRequest(async () => {
          try {
            const text = await getText(path);
            if (!isUnmounted) succeed(text);
          } catch (error) {
            if (!isUnmounted) reportFailure(error);
          }
        });
      clearTimeout(timer);
      if (!isUnmounted) timer = setTimeout(poll, untilBeat(everyMs));
    };
    request.current = () => {
      lastText = null;
      return poll();
    };
    const pollIfVisible = () => void (document.hidden || poll());
    document.addEventListener("visibilitychange", pollIfVisible);
    void poll();
    return () => {
      isUnmounted = true;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", pollIfVisible);
    };
  }, [path, everyMs]);
  return { ...answer, heard, again: () => void request.current() };
}

export function useMoved(report, atMs) {
  const lastMove = useRef({ now: null, atMs: null });
  if (report !== null && report.now !== lastMove.current.now) lastMove.current = { now: report.now, atMs };
  return lastMove.current.atMs;
}

/** Null while the worker sends current reports; otherwise what is wrong, and since when by the browser's clock. */
export function lostSince({ failed, heard }, movedAtMs, atMs) {
  if (failed !== null) return { sinceMs: movedAtMs, what: "away" };
  const isStale = heard.current - movedAtMs > STALE_REPORT_AGE_MS && atMs - movedAtMs > STALE_REPORT_AGE_MS;
  return isStale ? { sinceMs: movedAtMs, what: "old" } : null;
}

/** Posts a change. Returns the response, or `{ message }` with the reason of a failure. */
export async function post(path, body) {
  try {
    const response = await fetch(path, {
      method: "POST",
      // Another site cannot send this header without a CORS preflight request, which is never granted.
      headers: { "x-plenum": "status-page", "content-type": "application/json" },
      signal: AbortSignal.timeout(REQUEST_TIMEOUT_MS),
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const result = await response.json();
    return response.ok ? { ...result, message: null } : { message: result.message };
  } catch {
    return { message: t("The worker did not respond, so it is unknown whether this was done.") };
  }
}
