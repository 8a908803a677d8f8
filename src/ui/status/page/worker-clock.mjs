import { agoText, at, fullTimeText, untilText } from "/formats.mjs";
import { html, useEffect, useLayoutEffect, useRef, useState } from "/htm.mjs";

/** The worker's time, which continues by the browser's clock while the worker does not respond. */

const REDRAW_INTERVAL_MS = 2000;
/** Before a redraw, the page waits for requests to start, then for their responses, each at most this long. */
const REQUEST_START_WAIT_MS = 50;
const MAX_RESPONSE_WAIT_MS = 1000;
let workerAheadMs = 0;
const redrawListeners = new Set();
export const nowMs = () => Date.now() + workerAheadMs;

/** `isoTime`: time of the worker. `atMs`: browser time at which the page received it. */
export function setWorkerClock(isoTime, atMs) {
  workerAheadMs = Date.parse(isoTime) - atMs;
}

/** Returns the wait until the next multiple of `intervalMs`, so that all polls are sent together. */
export const msUntilNextInterval = (intervalMs) => intervalMs - (Date.now() % intervalMs);

/** Updates of the page that wait for the next redraw; one common redraw is cheaper than a redraw per update. */
const queuedUpdates = [];
let openRequestCount = 0;

export const queueUpdate = (update) => void queuedUpdates.push(update);

export async function holdUpdatesDuring(request) {
  openRequestCount += 1;
  try {
    await request();
  } finally {
    openRequestCount -= 1;
    if (openRequestCount === 0) drawQueuedUpdates();
  }
}

function drawQueuedUpdates() {
  for (const updateTimeText of queuedUpdates.splice(0)) updateTimeText();
  if (!document.hidden) for (const listener of redrawListeners) listener();
}

const waitFor = (ms) => new Promise((done) => setTimeout(done, ms));
void (async () => {
  for (;;) {
    await waitFor(msUntilNextInterval(REDRAW_INTERVAL_MS) + REQUEST_START_WAIT_MS);
    if (openRequestCount === 0) drawQueuedUpdates();
    else {
      await waitFor(MAX_RESPONSE_WAIT_MS);
      if (openRequestCount > 0) drawQueuedUpdates();
    }
  }
})();
document.addEventListener("visibilitychange", drawQueuedUpdates);

/** Shows a text that depends on the time, and redraws only a changed text. */
export function CurrentTimeText({ say }) {
  const latestFormatter = useRef(say);
  latestFormatter.current = say;
  const timeText = say(nowMs());
  const drawnText = useRef(timeText);
  drawnText.current = timeText;
  const [, redraw] = useState(timeText);
  useEffect(() => {
    const updateTimeText = () => {
      const nextText = latestFormatter.current(nowMs());
      if (nextText !== drawnText.current) redraw(nextText);
    };
    redrawListeners.add(updateTimeText);
    return () => redrawListeners.delete(updateTimeText);
  }, []);
  return timeText;
}

const updatesByElement = new WeakMap();
const visibilityObserver = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    const updateTimeText = updatesByElement.get(target);
    if (updateTimeText === undefined) continue;
    if (!isIntersecting) redrawListeners.delete(updateTimeText);
    else {
      redrawListeners.add(updateTimeText);
      updateTimeText();
    }
  }
});

/** Shows an age and updates it without Preact, which would compare the complete list each time. */
function RelativeTime({ iso, say }) {
  const element = useRef(null);
  const updateTimeText = () => {
    const timeText = say(iso, nowMs());
    if (element.current !== null && element.current.textContent !== timeText) element.current.textContent = timeText;
  };
  useLayoutEffect(updateTimeText);
  useEffect(() => {
    const { current } = element;
    updatesByElement.set(current, updateTimeText);
    visibilityObserver.observe(current);
    return () => {
      visibilityObserver.unobserve(current);
      redrawListeners.delete(updatesByElement.get(current));
      updatesByElement.delete(current);
    };
  }, [iso, say]);
  return html`<time datetime=${iso} title=${fullTimeText(iso)} ref=${element}></time>`;
}

export const Age = ({ of }) => (of ? html`<${RelativeTime} iso=${of} say=${agoText} />` : agoText(of, nowMs()));
export const TimeUntil = ({ time }) => html`<${RelativeTime} iso=${time} say=${untilText} />`;
export const At = ({ time }) => html`<time datetime=${time} title=${fullTimeText(time)}>${at(time, nowMs())}</time>`;
