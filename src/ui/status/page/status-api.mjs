import { useEffect, useRef, useState } from "/htm.mjs";
import { holdUpdatesDuring, msUntilNextInterval, queueUpdate } from "/worker-clock.mjs";

/** Limits a request, because a suspended worker accepts requests and never responds. */
const REQUEST_TIMEOUT_MS = 5000;
/** Maximum number of cached responses; a view that is opened again shows its cached response at once. */
const MAX_CACHED_RESPONSES = 20;
const cachedResponses = new Map();

async function fetchResponseText(path) {
  const response = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(REQUEST_TIMEOUT_MS) });
  const text = await response.text();
  if (response.ok) return text;
  let body = {};
  try {
    body = JSON.parse(text) ?? {};
  } catch {
    // A proxy in front of the worker sent no JSON.
  }
  const error = new Error(body.message ?? `The worker answered ${response.status}.`);
  error.status = response.status;
  error.holder = body.holder ?? null;
  throw error;
}

/**
 * Polls `path`, one request at a time; a null path is not polled. The returned `data` is from the last response, even
 * while the worker does not respond; `of` is its path. Browser times: `atMs`, when the response last changed;
 * `heard.current`, when the last response arrived. `again()` polls now, after a change. `missing`: the worker does not
 * know the object. `holder`: fleet member that polls the object's source.
 */
export function usePolledData(path, initialData, pollMs) {
  const emptyResponse = { of: null, data: initialData, failed: null, atMs: null };
  const [answer, setAnswer] = useState(() => cachedResponses.get(path) ?? emptyResponse);
  const pollNow = useRef(async () => {});
  const lastHeardAtMs = useRef(answer.atMs);
  useEffect(() => {
    if (path === null) return;
    let timer;
    let isUnmounted = false;
    let lastResponseText = null;
    const acceptResponse = (responseText) => {
      lastHeardAtMs.current = Date.now();
      if (responseText === lastResponseText) return;
      const isFirstResponse = lastResponseText === null;
      lastResponseText = responseText;
      const nextResponse = { of: path, data: JSON.parse(responseText), failed: null, atMs: lastHeardAtMs.current };
      cachedResponses.delete(path);
      cachedResponses.set(path, nextResponse);
      if (cachedResponses.size > MAX_CACHED_RESPONSES) cachedResponses.delete(cachedResponses.keys().next().value);
      if (isFirstResponse) setAnswer(nextResponse);
      else queueUpdate(() => !isUnmounted && lastResponseText === responseText && setAnswer(nextResponse));
    };
    const reportFailure = (error) => {
      lastResponseText = null;
      const failureText = String(error.message ?? error);
      setAnswer((prev) => ({ ...prev, failed: failureText, missing: error.status === 404, holder: error.holder }));
    };
    const pollOnce = async () => {
      clearTimeout(timer);
      if (!document.hidden)
        await holdUpdatesDuring(async () => {
          try {
            const text = await fetchResponseText(path);
            if (!isUnmounted) acceptResponse(text);
          } catch (error) {
            if (!isUnmounted) reportFailure(error);
          }
        });
      clearTimeout(timer);
      if (!isUnmounted) timer = setTimeout(pollOnce, msUntilNextInterval(pollMs));
    };
    pollNow.current = () => {
      lastResponseText = null;
      return pollOnce();
    };
    const pollIfVisible = () => void (document.hidden || pollOnce());
    document.addEventListener("visibilitychange", pollIfVisible);
    void pollOnce();
    return () => {
      isUnmounted = true;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", pollIfVisible);
    };
  }, [path, pollMs]);
  return { ...answer, heard: lastHeardAtMs, again: () => void pollNow.current() };
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
    return { message: "The worker did not respond, so it is unknown whether this was done." };
  }
}
