import { html, render, useEffect, useState } from "/htm.mjs";
import { Alarms, ago, Commands, Events, Notices, Quota, Sinks, Sites, Values } from "/parts.mjs";

const EVERY_MS = 2000;

async function json(path) {
  const response = await fetch(path, { cache: "no-store" });
  if (!response.ok) throw new Error(`The worker answered ${response.status}.`);
  return response.json();
}

/** Asks again and again, never twice at a time; keeps the last answer on screen while the worker is away. */
function usePolled(path, start) {
  const [answer, setAnswer] = useState({ data: start, failed: null });
  useEffect(() => {
    let timer;
    let over = false;
    const ask = async () => {
      try {
        const data = await json(path);
        if (!over) setAnswer({ data, failed: null });
      } catch (error) {
        if (!over) setAnswer((last) => ({ data: last.data, failed: String(error.message ?? error) }));
      }
      if (!over) timer = setTimeout(ask, EVERY_MS);
    };
    void ask();
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, [path]);
  return answer;
}

function Page() {
  const [chosen, choose] = useState(null);
  const [search, setSearch] = useState("");
  const status = usePolled("/api/status", null);
  const alarms = usePolled("/api/alarms", []);
  const query = new URLSearchParams({
    ...(chosen === null ? {} : { site: chosen }),
    ...(search ? { search } : {}),
  });
  const values = usePolled(`/api/values?${query}`, []);
  const events = usePolled("/api/events", []);
  const report = status.data;
  if (report === null) return html`<p class="loading">${status.failed ?? "Loading …"}</p>`;

  const now = Date.parse(report.now);
  const lost = status.failed !== null;
  const sites = report.sources.flatMap((source) => source.sites);
  return html`
    <header>
      <h1><img src="/favicon.svg" alt="" /> Plenum</h1>
      <p class="of">version ${report.version} · started ${ago(report.startedAt, now)} · ${report.now.slice(0, 19)}Z</p>
      <p class=${`pulse ${lost ? "lost" : report.notices.length > 0 ? "trouble" : "well"}`} role="status">
        ${lost ? "The worker does not answer; what you see is old." : report.notices.length > 0 ? "needs attention" : "all is well"}
      </p>
    </header>
    <main>
      <${Notices} notices=${report.notices} />
      <${Commands} commands=${report.commands} />
      <div class="grid">
        ${report.sources.map((source) => html`<${Quota} source=${source} now=${now} />`)}
        <${Sinks} sinks=${report.sinks} now=${now} />
        <${Sites} sites=${sites} chosen=${chosen} choose=${choose} />
        <${Alarms} alarms=${alarms.data} chosen=${chosen} now=${now} />
        <${Values} values=${values.data} search=${search} setSearch=${setSearch} now=${now} />
        <${Events} events=${events.data} />
      </div>
    </main>
  `;
}

const root = document.getElementById("app");
root.replaceChildren();
render(html`<${Page} />`, root);
