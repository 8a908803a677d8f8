import { html, useEffect, useLayoutEffect, useRef, useState } from "/htm.mjs";
import { ago, at, exactly, until } from "/words.mjs";

/** The worker's time, which goes on by the browser's own clock whether anybody answers or not. */

/** Interval in milliseconds in which ages are updated, together with the requests. */
const BEAT_MS = 2000;

let aheadMs = 0;
const tickers = new Set();

export const nowMs = () => Date.now() + aheadMs;

/** `iso`: the worker's own time; `atMs`: when it was heard, by the browser's clock. */
export function setClock(iso, atMs) {
  aheadMs = Date.parse(iso) - atMs;
}

/** Milliseconds until the next beat of all that goes on every `everyMs`. */
export const untilBeat = (everyMs) => everyMs - (Date.now() % everyMs);

/** Answers of a beat are drawn together and with the ages: each drawing costs far more than what changed in it. */
const gathered = [];
let underWay = 0;
/** An answer that takes longer keeps the others waiting no more. */
const GATHER_MS = 1000;
/** Delay in milliseconds after which the requests of an interval were sent. */
const ASKED_MS = 50;

/** Draws a change with what else is asked for at this time; see `asked`. */
export function together(change) {
  gathered.push(change);
}

/** Waits for an answer whose change may be drawn together with others. */
export async function asked(work) {
  underWay += 1;
  try {
    await work();
  } finally {
    underWay -= 1;
    if (underWay === 0) tick();
  }
}

function tick() {
  for (const change of gathered.splice(0)) change();
  if (document.hidden) return;
  for (const each of tickers) each();
}
const pause = (ms) => new Promise((done) => setTimeout(done, ms));
void (async () => {
  for (;;) {
    await pause(untilBeat(BEAT_MS) + ASKED_MS);
    if (underWay === 0) tick();
    else {
      // The last answer draws, unless it takes too long.
      await pause(GATHER_MS);
      if (underWay > 0) tick();
    }
  }
})();
document.addEventListener("visibilitychange", tick);

/** Words about the present: `say` is asked at every beat, and only what changed is drawn. */
export function Now({ say }) {
  const latest = useRef(say);
  latest.current = say;
  const words = say(nowMs());
  const drawn = useRef(words);
  drawn.current = words;
  const [, draw] = useState(words);
  useEffect(() => {
    const look = () => {
      const next = latest.current(nowMs());
      if (next !== drawn.current) draw(next);
    };
    tickers.add(look);
    return () => tickers.delete(look);
  }, []);
  return words;
}

const looks = new WeakMap();
/** Only visible rows are updated. */
const inSight = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    const look = looks.get(target);
    if (look === undefined) continue;
    if (!isIntersecting) tickers.delete(look);
    else {
      tickers.add(look);
      look();
    }
  }
});

/** A relative time that updates itself, written without Preact, which would compare the complete list each time. */
function Going({ iso, say }) {
  const place = useRef(null);
  const latest = useRef(say);
  latest.current = say;
  const write = () => {
    const words = latest.current(iso, nowMs());
    if (place.current !== null && place.current.textContent !== words) place.current.textContent = words;
  };
  useLayoutEffect(write);
  useEffect(() => {
    const { current } = place;
    looks.set(current, write);
    inSight.observe(current);
    return () => {
      inSight.unobserve(current);
      tickers.delete(looks.get(current));
      looks.delete(current);
    };
  }, [iso]);
  return html`<time datetime=${iso} title=${exactly(iso)} ref=${place}></time>`;
}

/** Age of a time; hovering shows the exact time. */
export function Age({ of }) {
  return of ? html`<${Going} iso=${of} say=${ago} />` : ago(of, nowMs());
}

export function Until({ time }) {
  return html`<${Going} iso=${time} say=${until} />`;
}

export function At({ time }) {
  return html`<time datetime=${time} title=${exactly(time)}>${at(time, nowMs())}</time>`;
}
