import { setNeedsPassword } from "/components.mjs";
import { agoText, at, countText, hourAndMinute, valueText } from "/formats.mjs";
import { html, render, useEffect, useErrorBoundary, useRef, useState } from "/htm.mjs";
import { Overview, sitesOfSources } from "/overview.mjs";
import { usePolledData } from "/status-api.mjs";
import { TagsPanel, tagListQuery } from "/tags-panel.mjs";
import { amendViewQuery, useViewAddress } from "/view-url.mjs";
import { CurrentTimeText, setWorkerClock } from "/worker-clock.mjs";

const STATUS_POLL_MS = 2000;
const WORKER_CHECK_MS = 1000;
/** The page reports the worker as lost if the worker's clock has not advanced for this long. */
const STALE_REPORT_AGE_MS = 10_000;

const VIEW_LOADERS = {
  tag: () => import("/tag-view.mjs"),
  alarm: () => import("/alarm-view.mjs"),
  site: () => import("/site-view.mjs"),
  sink: () => import("/sink-view.mjs"),
  source: () => import("/source-view.mjs"),
  commands: () => import("/commands-view.mjs"),
  fleet: () => import("/fleet-view.mjs"),
};

/** Adjusts the page's worker clock to each new report. Returns the browser time at which the last one arrived. */
function useReportChangeTime(report, atMs) {
  const lastChange = useRef({ now: null, atMs: null });
  if (report !== null && report.now !== lastChange.current.now) {
    lastChange.current = { now: report.now, atMs };
    setWorkerClock(report.now, atMs);
  }
  return lastChange.current.atMs;
}

/** Returns why and since when the worker counts as lost; null while it sends current reports. */
function lostWorkerSince({ failed, heard }, changedAtMs, atMs) {
  if (failed !== null) return { sinceMs: changedAtMs, what: "away" };
  const isReportStale = heard.current - changedAtMs > STALE_REPORT_AGE_MS && atMs - changedAtMs > STALE_REPORT_AGE_MS;
  return isReportStale ? { sinceMs: changedAtMs, what: "old" } : null;
}

function useLostWorker(status, changedAtMs) {
  const [lostWorker, setLostWorker] = useState(null);
  useEffect(() => {
    const checkWorker = () => {
      if (changedAtMs === null) return;
      const nextLost = lostWorkerSince(status, changedAtMs, Date.now());
      setLostWorker((last) => (last?.what === nextLost?.what && last?.sinceMs === nextLost?.sinceMs ? last : nextLost));
    };
    checkWorker();
    const timer = setInterval(checkWorker, WORKER_CHECK_MS);
    return () => clearInterval(timer);
  }, [status.failed, changedAtMs]);
  return lostWorker;
}

function LoadedView({ view, ...props }) {
  const [loaded, setLoadedView] = useState(null);
  useEffect(() => {
    let isUnmounted = false;
    const FailedView = () => html`<p class="problem">This view cannot be loaded now; load the page again.</p>`;
    VIEW_LOADERS[view]().then(
      ({ View }) => isUnmounted || setLoadedView({ View }),
      () => isUnmounted || setLoadedView({ View: FailedView }),
    );
    return () => {
      isUnmounted = true;
    };
  }, [view]);
  return loaded === null ? html`<p class="loading">Loading …</p>` : html`<${loaded.View} ...${props} />`;
}

/** Shows the view that the page's address names. An error in the view does not affect the rest of the page. */
function CurrentView({ address: { view, parts, query }, ...props }) {
  const [error] = useErrorBoundary((caught) => console.error(caught));
  if (error) return html`<p class="problem">This view cannot be displayed: ${String(error.message ?? error)}</p>`;
  if (view === "tags")
    return html`<${TagsPanel} query=${tagListQuery(query)} amend=${amendViewQuery} sites=${sitesOfSources(props.report.sources)} />`;
  if (Object.hasOwn(VIEW_LOADERS, view))
    return html`<${LoadedView} view=${view} parts=${parts} query=${query} ...${props} />`;
  return html`<${Overview} query=${query} ...${props} />`;
}

function StatusPage() {
  const address = useViewAddress();
  const polledStatus = usePolledData("/api/status", null, STATUS_POLL_MS);
  const report = polledStatus.data;
  const reportChangedAtMs = useReportChangeTime(report, polledStatus.atMs);
  setNeedsPassword(report?.needsPassword === true);
  const lostWorker = useLostWorker(polledStatus, reportChangedAtMs);
  const isWorkerLost = lostWorker !== null || (report === null && polledStatus.failed !== null);
  useEffect(() => {
    document.title = isWorkerLost ? "✕ no response – Plenum" : "Plenum";
  }, [isWorkerLost]);
  if (report === null)
    return polledStatus.failed === null
      ? html`<p class="loading">Loading …</p>`
      : html`<p class="loading problem">The worker does not respond: ${polledStatus.failed}</p>`;

  const withoutFailureWhileLost = (response) => (lostWorker === null ? response : { ...response, failed: null });
  const { view, parts } = address;
  return html`
    <${PageHeader} report=${report} lost=${lostWorker} view=${view} />
    <main class=${lostWorker === null ? "" : "old"}>
      <${LostWorkerWarning} lost=${lostWorker} />
      ${report.notices.length > 0 && html`<section class="notices" aria-label="Attention"><ul>${report.notices.map((text) => html`<li>${text}</li>`)}</ul></section>`}
      <${FirstInventoryProgress} sources=${report.sources} />
      <${CurrentView} key=${[view, ...parts].join("/")} address=${address} report=${report} during=${withoutFailureWhileLost} />
    </main>`;
}

function PageHeader({ report, lost, view }) {
  const [severity, statusText] =
    lost !== null
      ? ["lost", "no response"]
      : report.notices.length > 0
        ? ["trouble", "Plenum needs attention"]
        : ["well", "Plenum works"];
  const viewLinks = [
    ["", "Overview"],
    ["tags", "Tags"],
    ...(report.commands === null ? [] : [["commands", "Commands"]]),
    ...(report.member === undefined ? [] : [["fleet", "Fleet"]]),
  ];
  return html`<header>
    <h1><img src="/favicon.svg" alt="" /> Plenum</h1>
    <nav aria-label="views">${viewLinks.map(
      ([name, label]) => html`<a href=${`#/${name}`} aria-current=${view === name ? "page" : undefined}>${label}</a>`,
    )}</nav>
    <p class=${`pulse ${severity}`} role="status">${statusText}</p>
    <p class=${lost === null ? "buildings" : "buildings of"}><${ActiveAlarmCount} sources=${report.sources} /></p>
    <p class="of">
      <${CurrentTimeText} say=${hourAndMinute} /> · ${
        report.startedAt === null
          ? "no worker is running · "
          : html`<span class="wide"><${CurrentTimeText} say=${(now) => `started ${agoText(report.startedAt, now)}`} /> · </span>`
      }version ${report.version}
    </p>
  </header>`;
}

function ActiveAlarmCount({ sources }) {
  const alarmCounts = sources.map((source) => source.readings.alarms);
  if (!alarmCounts.every(({ state }) => state === "whole" || state === "part")) return "Buildings: alarms unknown";
  const alarmCount = alarmCounts.reduce((sum, count) => sum + count.storedCount, 0);
  const priorityACount = sitesOfSources(sources).reduce((sum, { alarms }) => sum + (alarms?.A ?? 0), 0);
  if (alarmCount === 0) return "Buildings: no active alarm";
  const alarmCountText = `Buildings: ${countText(alarmCount, "active alarm")}`;
  return priorityACount === 0
    ? alarmCountText
    : html`${alarmCountText}, <b class="bad">${valueText(priorityACount)} of priority A</b>`;
}

/** Warns that the data is old. Times are of the browser's clock, because the worker's clock stands still. */
function LostWorkerWarning({ lost }) {
  if (lost === null) return null;
  const lostSinceTime = new Date(lost.sinceMs).toISOString();
  const lostSinceText = at(lostSinceTime, Date.now());
  const lostWorkerMessage =
    lost.what === "away"
      ? `The worker has not responded since ${lostSinceText}`
      : `The worker has sent an unchanged time since ${lostSinceText}`;
  return html`<section class="gone" role="alert">
    <b>${lostWorkerMessage}, <${CurrentTimeText} say=${() => agoText(lostSinceTime, Date.now())} />.</b>
    The page shows data from that time. The ages continue to count.
  </section>`;
}

function FirstInventoryProgress({ sources }) {
  return sources
    .filter(({ firstInventory }) => firstInventory?.message != null)
    .map(
      ({ name, firstInventory }) =>
        html`<p class="of" role="status" key=${name}>${sources.length > 1 ? `${name}: ` : ""}${firstInventory.message}</p>`,
    );
}

const rootElement = document.getElementById("app");
rootElement.replaceChildren();
render(html`<${StatusPage} />`, rootElement);
