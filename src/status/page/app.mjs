import { html, render, useEffect, useState } from "/htm.mjs";
import { Header, Notices, Overview } from "/overview.mjs";
import { Alarms, Events, Sinks, Sites, Source, Values } from "/panels.mjs";
import { Plan } from "/plan.mjs";

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
        // A page that nobody sees costs the worker nothing.
        const data = document.hidden ? null : await json(path);
        if (!over && data !== null) setAnswer({ data, failed: null });
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
    ...(chosen === null ? {} : { source: chosen.source, site: chosen.site }),
    ...(search ? { search } : {}),
  });
  const values = usePolled(`/api/values?${query}`, { total: 0, rows: [] });
  const events = usePolled("/api/events", []);
  const report = status.data;
  if (report === null) return html`<p class="loading">${status.failed ?? "Loading …"}</p>`;

  const now = Date.parse(report.now);
  const lost = status.failed !== null;
  const choice = { chosen, choose };
  return html`
    <${Header} report=${report} lost=${lost} now=${now} />
    <main>
      <${Notices} notices=${report.notices} lost=${lost} />
      <${Overview} report=${report} now=${now} />
      <div class="columns">
        <div>
          <${Alarms} alarms=${alarms.data} now=${now} ...${choice} />
          <${Values} values=${values.data} search=${search} setSearch=${setSearch} now=${now} ...${choice} />
        </div>
        <div>
          <${Sites} sources=${report.sources} ...${choice} />
          ${report.sources.map((source) => html`<${Plan} key=${source.name} source=${source} several=${report.sources.length > 1} now=${now} />`)}
          <${Sinks} sinks=${report.sinks} now=${now} />
          ${report.sources.map((source) => html`<${Source} key=${source.name} source=${source} now=${now} />`)}
          <${Events} events=${events.data} now=${now} />
        </div>
      </div>
    </main>
  `;
}

const root = document.getElementById("app");
root.replaceChildren();
render(html`<${Page} />`, root);
