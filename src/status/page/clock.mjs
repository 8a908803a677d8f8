import { html, useEffect, useRef, useState } from "/htm.mjs";
import { ago, at, exactly, until } from "/words.mjs";

/** The worker's time, which goes on by the browser's own clock whether anybody answers or not. */

const EVERY_MS = 1000;

let aheadMs = 0;
const tickers = new Set();

export const nowMs = () => Date.now() + aheadMs;

/** `iso`: the worker's own time; `atMs`: when it was heard, by the browser's clock. */
export function setClock(iso, atMs) {
  aheadMs = Date.parse(iso) - atMs;
}

function tick() {
  if (document.hidden) return;
  for (const each of tickers) each();
}
setInterval(tick, EVERY_MS);
document.addEventListener("visibilitychange", tick);

/** Words about the present: `say` is asked every second, and only what changed is drawn. */
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

/** How long something is ago; the exact time for whoever rests on it. */
export function Age({ of }) {
  if (!of) return html`<${Now} say=${(now) => ago(of, now)} />`;
  return html`<time datetime=${of} title=${exactly(of)}><${Now} say=${(now) => ago(of, now)} /></time>`;
}

export function Until({ time }) {
  return html`<time datetime=${time} title=${exactly(time)}><${Now} say=${(now) => until(time, now)} /></time>`;
}

export function At({ time }) {
  return html`<time datetime=${time} title=${exactly(time)}>${at(time, nowMs())}</time>`;
}
