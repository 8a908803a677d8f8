import { html, useEffect, useLayoutEffect, useRef, useState } from "/htm.mjs";
import { ago, at, exactly, until } from "/words.mjs";

/** The worker's time, which goes on by the browser's own clock whether anybody answers or not. */

/** What comes together is drawn together: the ages go on in the beat in which the worker is asked. */
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

function tick() {
  if (document.hidden) return;
  for (const each of tickers) each();
}
void (async () => {
  for (;;) {
    await new Promise((done) => setTimeout(done, untilBeat(BEAT_MS)));
    tick();
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
/** Of a hundred rows those count on that are in sight; the others when they come into it. */
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

/** A time in words that go on. They are written past Preact: a list would else be compared anew each time. */
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

/** How long something is ago; the exact time for whoever rests on it. */
export function Age({ of }) {
  return of ? html`<${Going} iso=${of} say=${ago} />` : ago(of, nowMs());
}

export function Until({ time }) {
  return html`<${Going} iso=${time} say=${until} />`;
}

export function At({ time }) {
  return html`<time datetime=${time} title=${exactly(time)}>${at(time, nowMs())}</time>`;
}
