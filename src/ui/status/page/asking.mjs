import { asked, together, untilBeat } from "/clock.mjs";
import { useEffect, useRef, useState } from "/htm.mjs";
import { t } from "/language.mjs";

/** Asking the worker, again and again, without asking more of it or of the browser than is looked at. */

/** A worker that is well answers in milliseconds; one that is stopped takes the request and never answers. */
const ANSWER_WITHIN_MS = 5000;
/** A response whose own time does not change for this long is stale, in milliseconds. */
const STANDS_STILL_MS = 10_000;
/** Last answers, so that the way back shows at once what was there. */
const MOST_KEPT = 20;
const kept = new Map();

function keep(path, answer) {
  kept.delete(path);
  kept.set(path, answer);
  if (kept.size > MOST_KEPT) kept.delete(kept.keys().next().value);
}

async function textOf(path) {
  const response = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(ANSWER_WITHIN_MS) });
  const text = await response.text();
  if (response.ok) return text;
  const { holder = null, message = null } = told(text);
  const error = new Error(message ?? t("The worker answered {status}.", { status: response.status }));
  error.status = response.status;
  error.holder = holder;
  throw error;
}

function told(text) {
  try {
    return JSON.parse(text) ?? {};
  } catch {
    return {};
  }
}

/**
 * Asks again and again, never twice at a time; keeps the last answer on screen while the worker is away. `atMs` is
 * when it last said something else, `of` the path that it was asked by, `heard.current` when it last answered, both by the browser's clock; `again` asks at
 * once, where something was changed. `missing` is true where the worker answers that there is no such thing, and `holder` then the
 * member of the fleet that has it. Nothing is asked where `path` is null.
 */
export function usePolled(path, start, everyMs) {
  const [answer, setAnswer] = useState(() => kept.get(path) ?? { of: null, data: start, failed: null, atMs: null });
  const asking = useRef(async () => {});
  const heard = useRef(answer.atMs);
  useEffect(() => {
    if (path === null) return;
    let timer;
    let over = false;
    let last = null;
    const take = (text) => {
      heard.current = Date.now();
      // An equal response needs no drawing.
      if (text === last) return;
      const isFirst = last === null;
      last = text;
      const next = { of: path, data: JSON.parse(text), failed: null, atMs: heard.current };
      keep(path, next);
      // The first response is drawn at once.
      if (isFirst) setAnswer(next);
      else
        together(() => {
          if (!over && last === text) setAnswer(next);
        });
    };
    const fail = (error) => {
      last = null;
      const why = {
        failed: String(error.message ?? error),
        missing: error.status === 404,
        holder: error.holder,
      };
      setAnswer((old) => ({ ...old, ...why }));
    };
    const ask = async () => {
      clearTimeout(timer);
      // A hidden page sends no requests.
      if (!document.hidden)
        await asked(async () => {
          try {
            const text = await textOf(path);
            if (!over) take(text);
          } catch (error) {
            if (!over) fail(error);
          }
        });
      clearTimeout(timer);
      if (!over) timer = setTimeout(ask, untilBeat(everyMs));
    };
    asking.current = () => {
      last = null;
      return ask();
    };
    const look = () => void (document.hidden || ask());
    document.addEventListener("visibilitychange", look);
    void ask();
    return () => {
      over = true;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", look);
    };
  }, [path, everyMs]);
  return { ...answer, heard, again: () => void asking.current() };
}

/** When the worker's own time last moved on, by the browser's clock. */
export function useMoved(report, atMs) {
  const moved = useRef({ now: null, atMs: null });
  if (report !== null && report.now !== moved.current.now) moved.current = { now: report.now, atMs };
  return moved.current.atMs;
}

/** Null while the worker answers with the present; otherwise what is wrong, and since when by the browser's clock. */
export function lostSince({ failed, heard }, movedAtMs, atMs) {
  if (failed !== null) return { sinceMs: movedAtMs, what: "away" };
  const stands = heard.current - movedAtMs > STANDS_STILL_MS && atMs - movedAtMs > STANDS_STILL_MS;
  return stands ? { sinceMs: movedAtMs, what: "old" } : null;
}
