import { html, useEffect, useLayoutEffect, useRef, useState } from "/htm.mjs";
import { ago, at, exactTime, until } from "/language.mjs";

/** The worker's time, which continues by the browser's clock while the worker does not respond. */

/** Interval in milliseconds in which ages and responses are drawn. */
const REDRAW_INTERVAL_MS = 2000;
/** Wait for the requests of a beat to start, and longest wait for their responses, in milliseconds. */
const REQUEST_START_WAIT_MS = 50;
const MAX_RESPONSE_WAIT_MS = 1000;
let aheadMs = 0;
const listeners = new Set();
export const nowMs = () => Date.now() + aheadMs;

/** `iso`: the worker's own time; `atMs`: when it was received, by the browser's clock. */
export function setClock(iso, atMs) {
  aheadMs = Date.parse(iso) - atMs;
}

/** Milliseconds until the next multiple of `everyMs`, so that all requests of an interval are sent together. */
export const untilBeat = (everyMs) => everyMs - (Date.now() % everyMs);

/** Updates of a beat are drawn together with the ages: each drawing costs far more than what it changes. */
const updates = [];
let openRequests = 0;

export const batchUpdate = (update) => void updates.push(update);

export async function duringRequest(request) {
  openRequests += 1;
  try {
    await request();
  } finally {
    openRequests -= 1;
    if (openRequests === 0) drawUpdates();
  }
}

function drawUpdates() {
  for (const update of updates.splice(0)) update();
  if (!document.hidden) for (const listener of listeners) listener();
}

const pause = (ms) => new Promise((done) => setTimeout(done, ms));
void (async () => {
  for (;;) {
    await pause(untilBeat(REDRAW_INTERVAL_MS) + REQUEST_START_WAIT_MS);
    if (openRequests === 0) drawUpdates();
    else {
      await pause(MAX_RESPONSE_WAIT_MS);
      if (openRequests > 0) drawUpdates();
    }
  }
})();
document.addEventListener("visibilitychange", drawUpdates);

/** Text that depends on the time. Only a changed text is drawn. */
export function Now({ say }) {
  const latestSay = useRef(say);
  latestSay.current = say;
  const words = say(nowMs());
  const drawnWords = useRef(words);
  drawnWords.current = words;
  const [, redraw] = useState(words);
  useEffect(() => {
    const update = () => {
      const nextWords = latestSay.current(nowMs());
      if (nextWords !== drawnWords.current) redraw(nextWords);
    };
    listeners.add(update);
    return () => listeners.delete(update);
  }, []);
  return words;
}

const updatesByElement = new WeakMap();
const visibility = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    const update = updatesByElement.get(target);
    if (update === undefined) continue;
    if (!isIntersecting) listeners.delete(update);
    else {
      listeners.add(update);
      update();
    }
  }
});

/** A relative time that updates itself, without Preact, which would compare the complete list each time. */
function RelativeTime({ iso, say }) {
  const element = useRef(null);
  const update = () => {
    const words = say(iso, nowMs());
    if (element.current !== null && element.current.textContent !== words) element.current.textContent = words;
  };
  useLayoutEffect(update);
  useEffect(() => {
    const { current } = element;
    updatesByElement.set(current, update);
    visibility.observe(current);
    return () => {
      visibility.unobserve(current);
      listeners.delete(updatesByElement.get(current));
      updatesByElement.delete(current);
    };
  }, [iso, say]);
  return html`<time datetime=${iso} title=${exactTime(iso)} ref=${element}></time>`;
}

export const Age = ({ of }) => (of ? html`<${RelativeTime} iso=${of} say=${ago} />` : ago(of, nowMs()));
export const Until = ({ time }) => html`<${RelativeTime} iso=${time} say=${until} />`;
export const At = ({ time }) => html`<time datetime=${time} title=${exactTime(time)}>${at(time, nowMs())}</time>`;
