import { html, render, useEffect, useErrorBoundary, useRef, useState } from "/htm.mjs";
import { ago, at, countText, LanguageButton, loadLanguage, minuteOf, t, valueText } from "/language.mjs";
import { Overview, sitesOf } from "/overview.mjs";
import { setNeedsPassword } from "/shared-components.mjs";
import { listQuery, Tags } from "/tags.mjs";
import { amend, useAddress } from "/view-address.mjs";
import { Now, setClock } from "/worker-clock.mjs";
import { lostSince, useMoved, usePolled } from "/worker-requests.mjs";

const STATUS_POLL_MS = 2000;
const WORKER_CHECK_MS = 1000;

/** Views that are loaded on demand, by the first part of the address. */
const VIEWS = {
  tag: () => import("/tag.mjs"),
  alarm: () => import("/alarm.mjs"),
  site: () => import("/site.mjs"),
  sink: () => import("/sink.mjs"),
  source: () => import("/source.mjs"),
  commands: () => import("/commands.mjs"),
  fleet: () => import("/fleet.mjs"),
};

/** Checks every second whether the worker responds, and draws only changes. */
function useLost(status, movedAtMs) {
  const [lost, setLost] = useState(null);
  useEffect(() => {
    const check = () => {
      if (movedAtMs === null) return;
      const nextLost = lostSince(status, movedAtMs, Date.now());
      setLost((last) => (last?.what === nextLost?.what && last?.sinceMs === nextLost?.sinceMs ? last : nextLost));
    };
    check();
    const timer = setInterval(check, WORKER_CHECK_MS);
    return () => clearInterval(timer);
  }, [status.failed, movedAtMs]);
  return lost;
}

function Loaded({ view, ...props }) {
  const [loaded, setLoaded] = useState(null);
  useEffect(() => {
    let isUnmounted = false;
    const FailedView = () => html`<p class="problem">${t("This view cannot be loaded now; load the page again.")}</p>`;
    VIEWS[view]().then(
      ({ View }) => isUnmounted || setLoaded({ View }),
      () => isUnmounted || setLoaded({ View: FailedView }),
    );
    return () => {
      isUnmounted = true;
    };
  }, [view]);
  return loaded === null ? html`<p class="loading">${t("Loading …")}</p>` : html`<${loaded.View} ...${props} />`;
}

/** The view of the address. Its errors do not affect the rest of the page. */
function CurrentView({ address: { view, parts, query }, ...props }) {
  const [error] = useErrorBoundary((caught) => console.error(caught));
  if (error)
    return html`<p class="problem">${t("This view cannot be displayed:")} ${String(error.message ?? error)}</p>`;
  if (view === "tags")
    return html`<${Tags} query=${listQuery(query)} amend=${amend} sites=${sitesOf(props.report.sources)} />`;
  if (Object.hasOwn(VIEWS, view)) return html`<${Loaded} view=${view} parts=${parts} query=${query} ...${props} />`;
  return html`<${Overview} query=${query} ...${props} />`;
}

function Page() {
  const address = useAddress();
  const [language, setLanguage] = useState(null);
  const status = usePolled("/api/status", null, STATUS_POLL_MS);
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
    return status.failed === null
      ? html`<p class="loading">${t("Loading …")}</p>`
      : html`<p class="loading problem">${t("The worker does not respond:")} ${status.failed}</p>`;
  }

  const during = (answer) => (lost === null ? answer : { ...answer, failed: null });
  const { view, parts } = address;
  return html`
    <${Header} key=${`header ${language}`} report=${report} lost=${lost} view=${view} setLanguage=${setLanguage} />
    <main class=${lost === null ? "" : "old"}>
      <${Lost} lost=${lost} />
      ${report.notices.length > 0 && html`<section class="notices" aria-label=${t("Attention")}><ul>${report.notices.map((text) => html`<li lang="en">${text}</li>`)}</ul></section>`}
      <${FirstInventory} sources=${report.sources} />
      <${CurrentView} key=${[language, view, ...parts].join("/")} address=${address} report=${report} during=${during} />
    </main>`;
}

function Header({ report, lost, view, setLanguage }) {
  const [mood, words] =
    lost !== null
      ? ["lost", t("no response")]
      : report.notices.length > 0
        ? ["trouble", t("Plenum needs attention")]
        : ["well", t("Plenum works")];
  const links = [
    ["", t("Overview")],
    ["tags", t("Tags")],
    ...(report.commands === null ? [] : [["commands", t("Commands")]]),
    ...(report.member === undefined ? [] : [["fleet", t("Fleet")]]),
  ];
  return html`<header>
    <h1><img src="/favicon.svg" alt="" /> Plenum</h1>
    <nav aria-label=${t("views")}>${links.map(
      ([name, label]) => html`<a href=${`#/${name}`} aria-current=${view === name ? "page" : undefined}>${label}</a>`,
    )}</nav>
    <p class=${`pulse ${mood}`} role="status">${words}</p>
    <p class=${lost === null ? "buildings" : "buildings of"}><${Buildings} sources=${report.sources} /></p>
    <p class="of">
      <${Now} say=${minuteOf} /> · ${
        report.startedAt === null
          ? `${t("no worker is running")} · `
          : html`<span class="wide"><${Now} say=${(now) => t("started {ago}", { ago: ago(report.startedAt, now) })} /> · </span>`
      }${t("version {version}", { version: report.version })}
    </p>
    <${LanguageButton} kind="mute" done=${setLanguage} />
  </header>`;
}

function Buildings({ sources }) {
  const readings = sources.map((source) => source.readings.alarms);
  if (!readings.every(({ state }) => state === "whole" || state === "part")) return t("Buildings: alarms unknown");
  const alarmCount = readings.reduce((sum, reading) => sum + reading.held, 0);
  const priorityACount = sitesOf(sources).reduce((sum, { alarms }) => sum + (alarms?.A ?? 0), 0);
  if (alarmCount === 0) return t("Buildings: no active alarm");
  const words = t("Buildings: {alarms}", { alarms: countText(alarmCount, "active alarm") });
  return priorityACount === 0
    ? words
    : html`${words}, <b class="bad">${t("{count} of priority A", { count: valueText(priorityACount) })}</b>`;
}

/** Warns that the data is old. All times are of the browser's clock, because the worker's stands still. */
function Lost({ lost }) {
  if (lost === null) return null;
  const since = new Date(lost.sinceMs).toISOString();
  const time = at(since, Date.now());
  const message =
    lost.what === "away"
      ? t("The worker has not responded since {time}", { time })
      : t("The worker has sent an unchanged time since {time}", { time });
  return html`<section class="gone" role="alert">
    <b>${message}, <${Now} say=${() => ago(since, Date.now())} />.</b>
    ${t("The page shows data from that time. The ages continue to count.")}
  </section>`;
}

/** Progress of the first reading of each source's lists, in the worker's words. */
function FirstInventory({ sources }) {
  return sources
    .filter(({ firstInventory }) => firstInventory?.message != null)
    .map(
      ({ name, firstInventory }) =>
        html`<p class="of" role="status" lang="en" key=${name}>${sources.length > 1 ? `${name}: ` : ""}${firstInventory.message}</p>`,
    );
}

await loadLanguage();
const rootElement = document.getElementById("app");
rootElement.replaceChildren();
render(html`<${Page} />`, rootElement);
