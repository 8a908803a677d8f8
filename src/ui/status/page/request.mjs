import { batchUpdate, duringRequest, untilBeat } from "/clock.mjs";
import { useEffect, useRef, useState } from "/htm.mjs";
import { t } from "/language.mjs";

/** A working worker responds in milliseconds; a suspended one accepts requests and never responds. */
const TIMEOUT_MS = 5000;
/** Age from which a report with an unchanged time is stale, in milliseconds. */
const STALE_MS = 10_000;
/** Latest responses by path, so that a return to a view shows its last content at once. */
const MOST_CACHED = 20;
const cached = new Map();

async function getText(path) {
  const response = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(TIMEOUT_MS) });
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
  const [answer, setAnswer] = useState(() => cached.get(path) ?? { of: null, data: start, failed: null, atMs: null });
  const request = useRef(async () => {});
  const heard = useRef(answer.atMs);
  useEffect(() => {
    if (path === null) return;
    let timer;
    let over = false;
    let last = null;
    const succeed = (text) => {
      heard.current = Date.now();
      // An equal response needs no drawing.
      if (text === last) return;
      const isFirst = last === null;
      last = text;
      const next = { of: path, data: JSON.parse(text), failed: null, atMs: heard.current };
      cached.delete(path);
      cached.set(path, next);
      if (cached.size > MOST_CACHED) cached.delete(cached.keys().next().value);
      if (isFirst) setAnswer(next);
      else batchUpdate(() => !over && last === text && setAnswer(next));
    };
    const fail = (error) => {
      last = null;
      const failed = String(error.message ?? error);
      setAnswer((old) => ({ ...old, failed, missing: error.status === 404, holder: error.holder }));
    };
    const poll = async () => {
      clearTimeout(timer);
      // A hidden page sends no requests.
      if (!document.hidden)
        await duringRequest(async () => {
          try {
            const text = await getText(path);
            if (!over) succeed(text);
          } catch (error) {
            if (!over) fail(error);
          }
        });
      clearTimeout(timer);
      if (!over) timer = setTimeout(poll, untilBeat(everyMs));
    };
    request.current = () => {
      last = null;
      return poll();
    };
    const show = () => void (document.hidden || poll());
    document.addEventListener("visibilitychange", show);
    void poll();
    return () => {
      over = true;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", show);
    };
  }, [path, everyMs]);
  return { ...answer, heard, again: () => void request.current() };
}

export function useMoved(report, atMs) {
  const moved = useRef({ now: null, atMs: null });
  if (report !== null && report.now !== moved.current.now) moved.current = { now: report.now, atMs };
  return moved.current.atMs;
}

/** Null while the worker sends current reports; otherwise what is wrong, and since when by the browser's clock. */
export function lostSince({ failed, heard }, movedAtMs, atMs) {
  if (failed !== null) return { sinceMs: movedAtMs, what: "away" };
  const isStale = heard.current - movedAtMs > STALE_MS && atMs - movedAtMs > STALE_MS;
  return isStale ? { sinceMs: movedAtMs, what: "old" } : null;
}

/** Posts a change. Returns the response, or `{ message }` with the reason of a failure. */
export async function post(path, body) {
  try {
    const response = await fetch(path, {
      method: "POST",
      // Another site cannot send this header without a CORS preflight request, which is never granted.
      headers: { "x-plenum": "status-page", "content-type": "application/json" },
      signal: AbortSignal.timeout(TIMEOUT_MS),
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const result = await response.json();
    return response.ok ? { ...result, message: null } : { message: result.message };
  } catch {
    return { message: t("The worker did not respond, so it is unknown whether this was done.") };
  }
}
