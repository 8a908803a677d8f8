import { html, render, useEffect, useRef, useState } from "/htm.mjs";
import { Header, Lost, Notices, Overview } from "/overview.mjs";
import { Alarms, Events, Sinks, Sites, Source, Values } from "/panels.mjs";
import { Plan } from "/plan.mjs";
import { Silences } from "/silences.mjs";

const EVERY_MS = 2000;
/** A worker that is well answers in milliseconds; one that is stopped takes the request and never answers. */
const ANSWER_WITHIN_MS = 5000;
/** Answers whose own time stands still for so long are old, whoever keeps sending them. */
const STANDS_STILL_MS = 10_000;

async function json(path) {
  const response = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(ANSWER_WITHIN_MS) });
  if (!response.ok) throw new Error(`The worker answered ${response.status}.`);
  return response.json();
}

/**
 * Asks again and again, never twice at a time; keeps the last answer on screen while the worker is away. `atMs` is
 * when it came, by the browser's clock; `again` asks at once, where something was changed.
 */
function usePolled(path, start) {
  const [answer, setAnswer] = useState({ data: start, failed: null, atMs: null });
  const asking = useRef(async () => {});
  useEffect(() => {
    let timer;
    let over = false;
    const ask = async () => {
      clearTimeout(timer);
      try {
        // A page that nobody sees costs the worker nothing.
        const data = document.hidden ? null : await json(path);
        if (!over && data !== null) setAnswer({ data, failed: null, atMs: Date.now() });
      } catch (error) {
        if (!over) setAnswer((last) => ({ ...last, failed: String(error.message ?? error) }));
      }
      if (!over) timer = setTimeout(ask, EVERY_MS);
    };
    asking.current = ask;
    void ask();
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, [path]);
  return { ...answer, again: () => void asking.current() };
}

/** The browser's own clock, second by second: ages go on counting whether anybody answers or not. */
function useClock() {
  const [ms, setMs] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setMs(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  return ms;
}

/** When the worker's own time last moved on, by the browser's clock. */
function useMoved(report, atMs) {
  const moved = useRef({ now: null, atMs: null });
  if (report !== null && report.now !== moved.current.now) moved.current = { now: report.now, atMs };
  return moved.current.atMs;
}

/** Null while the worker answers with the present; otherwise what is wrong, and since when by the browser's clock. */
function lostSince(status, movedAtMs, nowMs) {
  if (status.failed !== null) return { sinceMs: movedAtMs, what: "does not answer" };
  const stands = status.atMs - movedAtMs > STANDS_STILL_MS;
  return stands && nowMs - movedAtMs > STANDS_STILL_MS
    ? { sinceMs: movedAtMs, what: "answers with an old time" }
    : null;
}

function Page() {
  const [chosen, choose] = useState(null);
  const [search, setSearch] = useState("");
  const status = usePolled("/api/status", null);
  const alarms = usePolled("/api/alarms", []);
  const query = new URLSearchParams({
    ...(chosen === null ? {} : { source: chosen.source, site: chosen.site }),
    ...(search ? { search } : {}),
  });
  const values = usePolled(`/api/values?${query}`, { total: 0, rows: [] });
  const events = usePolled("/api/events", []);
  const silences = usePolled("/api/silences", []);
  const clockMs = useClock();
  const report = status.data;
  const movedAtMs = useMoved(report, status.atMs);
  const lost = report === null ? null : lostSince(status, movedAtMs, clockMs);
  const isLost = lost !== null || (report === null && status.failed !== null);
  useEffect(() => {
    document.title = isLost ? "✕ no answer – Plenum" : "Plenum";
  }, [isLost]);
  if (report === null) {
    return html`<p class=${status.failed === null ? "loading" : "loading problem"}>
      ${status.failed === null ? "Loading …" : `The worker does not answer: ${status.failed}`}</p>`;
  }

  const now = Date.parse(report.now) + Math.max(0, clockMs - movedAtMs);
  const choice = { chosen, choose };
  // One thing is wrong then, and is said once.
  const said = (answer) => (lost === null ? answer : { ...answer, failed: null });
  const silenced = () => {
    silences.again();
    alarms.again();
  };
  return html`
    <${Header} report=${report} lost=${lost} now=${now} />
    <main class=${lost === null ? "" : "old"}>
      <${Lost} lost=${lost} clockMs=${clockMs} />
      <${Notices} notices=${report.notices} />
      <${Overview} report=${report} now=${now} />
      <div class="columns">
        <div>
          <${Alarms} alarms=${said(alarms)} sources=${report.sources} silenced=${silenced} now=${now} ...${choice} />
          <${Values} values=${said(values)} search=${search} setSearch=${setSearch} now=${now} ...${choice} />
        </div>
        <div>
          <${Sites} sources=${report.sources} now=${now} ...${choice} />
          <${Silences} silences=${said(silences)} done=${silenced} now=${now} />
          ${report.sources.map((source) => html`<${Plan} key=${source.name} source=${source} several=${report.sources.length > 1} now=${now} />`)}
          <${Sinks} sinks=${report.sinks} now=${now} />
          ${report.sources.map((source) => html`<${Source} key=${source.name} source=${source} now=${now} />`)}
          <${Events} events=${said(events)} now=${now} />
        </div>
      </div>
    </main>
  `;
}

const root = document.getElementById("app");
root.replaceChildren();
render(html`<${Page} />`, root);
