import { amend, useAddress } from "/address.mjs";
import { Alarms, useAlarms } from "/alarms.mjs";
import { lostSince, useMoved, usePolled } from "/asking.mjs";
import { AlarmDays } from "/bars.mjs";
import { setClock } from "/clock.mjs";
import { Configuration } from "/configuration.mjs";
import { FirstInventory, Header, Lost, Notices } from "/header.mjs";
import { html, render, useEffect, useErrorBoundary, useRef, useState } from "/htm.mjs";
import { preferred, remember, speak, spoken, t } from "/language.mjs";
import { Overview } from "/overview.mjs";
import { Events, Sinks, Sites, Source } from "/panels.mjs";
import { Plan } from "/plan.mjs";
import { setNeedsPassword } from "/rights.mjs";
import { Silences } from "/silences.mjs";
import { Tags, wishOf } from "/tags.mjs";

const STATUS_MS = 2000;
const LISTS_MS = 6000;
const SELDOM_MS = 10_000;
const LOOK_MS = 1000;

/** Views that are loaded on demand, by the first word of the address. */
const VIEWS = {
  tag: () => import("/tag.mjs"),
  alarm: () => import("/alarm.mjs"),
  site: () => import("/site.mjs"),
  sink: () => import("/sink.mjs"),
  source: () => import("/source.mjs"),
  commands: () => import("/commands.mjs"),
  fleet: () => import("/fleet.mjs"),
};

/** Looks every second whether the worker was lost, and draws only when that changed. */
function useLost(status, movedAtMs) {
  const [lost, set] = useState(null);
  useEffect(() => {
    const look = () => {
      if (movedAtMs === null) return;
      const next = lostSince(status, movedAtMs, Date.now());
      set((last) => (last?.what === next?.what && last?.sinceMs === next?.sinceMs ? last : next));
    };
    look();
    const timer = setInterval(look, LOOK_MS);
    return () => clearInterval(timer);
  }, [status.failed, movedAtMs]);
  return lost;
}

function sitesOf(sources) {
  return sources.flatMap((source) => source.sites.map((site) => ({ source: source.name, ...site })));
}

function OverviewView({ report, query, said }) {
  const { sources, sinks } = report;
  const alarms = useAlarms(null, query.get("priority"), LISTS_MS);
  const events = usePolled("/api/events", [], LISTS_MS);
  const silences = usePolled("/api/silences", [], SELDOM_MS);
  const silenced = () => {
    silences.again();
    alarms.again();
  };
  return html`
    <${Overview} report=${report} />
    <div class="columns">
      <div>
        <${Alarms} alarms=${said(alarms)} sources=${sources} silenced=${silenced}
          priority=${query.get("priority")} choose=${(priority) => amend({ priority })} />
        <${Tags} query=${wishOf(query)} amend=${amend} sites=${sitesOf(sources)} />
      </div>
      <div>
        <${Sites} sources=${sources} />
        <${AlarmDays} />
        <${Silences} silences=${said(silences)} done=${silenced} />
        <${Configuration} configuration=${report.configuration ?? null} />
        ${sources.map((source) => html`<${Plan} key=${source.name} source=${source} several=${sources.length > 1} />`)}
        <${Sinks} sinks=${sinks} />
        ${sources.map((source) => html`<${Source} key=${source.name} source=${source} />`)}
        <${Events} events=${said(events)} />
      </div>
    </div>`;
}

/** A view of a file of its own. */
function Loaded({ view, ...props }) {
  const [loaded, set] = useState(null);
  useEffect(() => {
    let over = false;
    VIEWS[view]().then(
      ({ View }) => over || set({ View }),
      () =>
        over ||
        set({
          View: () => html`<p class="problem">${t("This view cannot be loaded now; load the page again.")}</p>`,
        }),
    );
    return () => {
      over = true;
    };
  }, [view]);
  return loaded === null ? html`<p class="loading">${t("Loading …")}</p>` : html`<${loaded.View} ...${props} />`;
}

/** Shows an error in one view without affecting the others. */
function Shown({ address, ...props }) {
  const [broken] = useErrorBoundary((error) => console.error(error));
  const { view, parts, query } = address;
  if (broken) return html`<p class="problem">${t("This cannot be shown:")} ${String(broken.message ?? broken)}</p>`;
  if (view === "tags")
    return html`<${Tags} query=${wishOf(query)} amend=${amend} sites=${sitesOf(props.report.sources)} />`;
  if (Object.hasOwn(VIEWS, view)) return html`<${Loaded} view=${view} parts=${parts} query=${query} ...${props} />`;
  return html`<${OverviewView} query=${query} ...${props} />`;
}

function Page() {
  const address = useAddress();
  const [language, setLanguage] = useState(spoken());
  const status = usePolled("/api/status", null, STATUS_MS);
  const report = status.data;
  const movedAtMs = useMoved(report, status.atMs);
  const clock = useRef(null);
  if (report !== null && clock.current !== report.now) {
    setClock(report.now, movedAtMs);
    clock.current = report.now;
  }
  setNeedsPassword(report?.needsPassword === true);
  const lost = useLost(status, movedAtMs);
  const isLost = lost !== null || (report === null && status.failed !== null);
  useEffect(() => {
    document.title = isLost ? `✕ ${t("no response")} – Plenum` : "Plenum";
  }, [isLost, language]);
  if (report === null) {
    return html`<p class=${status.failed === null ? "loading" : "loading problem"}>
      ${status.failed === null ? t("Loading …") : `${t("The worker does not respond:")} ${status.failed}`}</p>`;
  }

  const choose = async (wanted) => {
    remember(wanted);
    await speak(wanted);
    setLanguage(wanted);
  };
  // A lost connection is reported once, not in each part.
  const said = (answer) => (lost === null ? answer : { ...answer, failed: null });
  const { view, parts } = address;
  return html`
    <${Header} key=${`header ${language}`} report=${report} lost=${lost} view=${view} choose=${choose} />
    <main class=${lost === null ? "" : "old"}>
      <${Lost} lost=${lost} />
      <${Notices} notices=${report.notices} />
      <${FirstInventory} sources=${report.sources} />
      <${Shown} key=${[language, view, ...parts].join("/")} address=${address} report=${report} said=${said} />
    </main>`;
}

await speak(preferred());
const root = document.getElementById("app");
root.replaceChildren();
render(html`<${Page} />`, root);
