import { ActiveAlarms, AllSitesAlarmDays, SilencesPanel, usePolledAlarms } from "/alarm-panels.mjs";
import {
  ConfirmButton,
  Panel,
  PriorityCounts,
  StaleWarning,
  siteAddress,
  Table,
  UnreliableCountWarning,
  unknownMark,
} from "/components.mjs";
import { agoText, at, countText, unreliableCountReason, valueText } from "/formats.mjs";
import { html } from "/htm.mjs";
import { QuotaPlanPanel, SourcePanel } from "/source-panels.mjs";
import { post, usePolledData } from "/status-api.mjs";
import { TagsPanel, tagListQuery } from "/tags-panel.mjs";
import { amendViewQuery, viewAddress } from "/view-url.mjs";
import { Age, At, CurrentTimeText, nowMs } from "/worker-clock.mjs";

const LISTS_POLL_MS = 6000;
const RARE_CHANGES_POLL_MS = 10_000;
export const sitesOfSources = (sources) =>
  sources.flatMap((source) => source.sites.map((site) => ({ source: source.name, ...site })));

/** Overview of all sources. `during` hides failures of single panels while the worker does not respond at all. */
export function Overview({ report, query, during }) {
  const { sources, sinks } = report;
  const priority = query.get("priority");
  const alarms = usePolledAlarms(null, priority, LISTS_POLL_MS);
  const events = usePolledData("/api/events", [], LISTS_POLL_MS);
  const silences = usePolledData("/api/silences", [], RARE_CHANGES_POLL_MS);
  const reloadSilences = () => {
    silences.again();
    alarms.again();
  };
  return html`
    <${OverviewTiles} report=${report} />
    <div class="columns">
      <div>
        <${ActiveAlarms} alarms=${during(alarms)} sources=${sources} silenced=${reloadSilences}
          priority=${priority} choose=${(newPriority) => amendViewQuery({ priority: newPriority })} />
        <${TagsPanel} query=${tagListQuery(query)} amend=${amendViewQuery} sites=${sitesOfSources(sources)} />
      </div>
      <div>
        <${SitesPanel} sources=${sources} />
        <${AllSitesAlarmDays} />
        <${SilencesPanel} silences=${during(silences)} done=${reloadSilences} />
        <${ConfigurationPanel} configuration=${report.configuration ?? null} />
        ${sources.map((source) => html`<${QuotaPlanPanel} key=${source.name} source=${source} several=${sources.length > 1} />`)}
        <${SinksPanel} sinks=${sinks} />
        ${sources.map((source) => html`<${SourcePanel} key=${source.name} source=${source} />`)}
        <${EventsPanel} events=${during(events)} />
      </div>
    </div>`;
}

function OverviewTile({ name, value, mood = "", children }) {
  return html`<div class="tile">
    <h2>${name}</h2>
    <p class=${`figure ${mood}`}>${value}</p>
    <p class="of">${children}</p>
  </div>`;
}

const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);

function sumListReadings(sources, listName) {
  const readings = sources.map((source) => [source, source.readings[listName]]);
  const states = readings.map(([, { state }]) => state);
  const countSum = sum(readings.map(([, reading]) => reading.storedCount));
  const isKnown = states.every((state) => state === "whole" || state === "part");
  const value = !isKnown ? "unknown" : states.includes("part") ? `${valueText(countSum)} +` : valueText(countSum);
  const warningText = (now) =>
    readings
      .flatMap(([source, reading]) => {
        const reason = unreliableCountReason(reading, listName, now);
        return reason === null ? [] : [sources.length > 1 ? `${source.name}: ${reason}` : reason];
      })
      .join("; ");
  const warning = warningText(nowMs()) !== "" && html`<b class="warn"><${CurrentTimeText} say=${warningText} /></b>`;
  return { value, isKnown, warning };
}

function OverviewTiles({ report }) {
  const { sources, sinks } = report;
  const sites = sitesOfSources(sources);
  return html`<section class="tiles" aria-label="Overview">
    <${AlarmsTile} sources=${sources} sites=${sites} />
    <${ValuesTile} sources=${sources} />
    <${GatewaysTile} sources=${sources} sites=${sites} />
    <${ServiceTile} sources=${sources} />
    <${SinksTile} sinks=${sinks} />
    <${WritingTile} commands=${report.commands} />
  </section>`;
}

function AlarmsTile({ sources, sites }) {
  const { value, isKnown, warning } = sumListReadings(sources, "alarms");
  const alarmCounts = {};
  for (const [priority, count] of sites.flatMap((site) => Object.entries(site.alarms ?? {})))
    alarmCounts[priority] = (alarmCounts[priority] ?? 0) + count;
  return html`<${OverviewTile} name="Active alarms" value=${value} mood=${isKnown ? "" : "unknown"}>
    <${PriorityCounts} counts=${alarmCounts} />
    ${warning || (Object.keys(alarmCounts).length === 0 && "the service lists none")}<//>`;
}

function GatewaysTile({ sources, sites }) {
  const { isKnown, warning } = sumListReadings(sources, "gateways");
  const gatewayCount = (name) => sum(sites.map(({ gateways }) => gateways[name] ?? 0));
  const [online, all, unclear] = ["online", "all", "unclear"].map(gatewayCount);
  const listCountTexts = ["sites", "tags"].map((name) => {
    const listedCounts = sources.map((source) => source.counts[name]);
    return listedCounts.includes(null) ? `${name} unknown` : countText(sum(listedCounts), name.slice(0, -1));
  });
  const tileMood = !isKnown ? "unknown" : online < all ? "warn" : "";
  return html`<${OverviewTile} name="Gateways online" value=${isKnown ? `${valueText(online)} / ${valueText(all)}` : "unknown"} mood=${tileMood}>
    ${warning && html`${warning} · `}${unclear > 0 && isKnown ? `${valueText(unclear)} unknown · ` : ""}${listCountTexts.join(" · ")}<//>`;
}

function ValuesTile({ sources }) {
  const valueCount = sum(sources.map(({ counts }) => counts.values));
  const unreadableCount = sum(sources.map(({ counts }) => counts.bad));
  const [oldestValueTime] = sources.flatMap((source) => source.oldestValue ?? []).toSorted();
  const [lateJob] = sources.flatMap((source) => source.jobs.filter((job) => job.name === "live" && job.late));
  const readabilityText =
    unreadableCount > 0
      ? html`<a class="warn" href="#/tags?show=bad">${valueText(unreadableCount)} unreadable</a>`
      : "all readable";
  return html`<${OverviewTile} name="Values" value=${valueText(valueCount)} mood=${lateJob === undefined ? "" : "unknown"}>
    ${valueCount === 0 ? "none was read yet" : readabilityText}${
      lateJob !== undefined &&
      html` · <b class="warn"><${CurrentTimeText} say=${(now) => `read last ${agoText(lateJob.lastSuccess, now)}`} /></b>`
    }${oldestValueTime !== undefined && html` · oldest <${Age} of=${oldestValueTime} />`}<//>`;
}

function ServiceTile({ sources }) {
  const hasServiceResponded = sources.every((source) => source.jobs.some((job) => job.lastSuccess !== null));
  const [value, mood] = sources.some(({ unavailable }) => unavailable.length > 0)
    ? ["unavailable", "bad"]
    : sources.some(({ jobs }) => jobs.some((job) => job.late))
      ? ["late", "warn"]
      : hasServiceResponded
        ? ["responds", "good"]
        : ["unknown", "unknown"];
  return html`<${OverviewTile} name="Monitoring service" value=${value} mood=${mood}>
    ${mood === "unknown" ? "it has not responded yet · " : ""}${requestUseText(sources)}<//>`;
}

function requestUseText(sources) {
  if (sources.some((source) => source.quota === null)) return "quota unknown";
  const quotaBuckets = sources.flatMap((source) => source.quota.buckets);
  const [used, allowed] = [
    sum(quotaBuckets.map((bucket) => bucket.used)),
    sum(quotaBuckets.map((bucket) => bucket.perMinute)),
  ];
  return allowed === 0 ? "no tag request yet" : `${used} of ${allowed} requests used`;
}

function SinksTile({ sinks }) {
  const workingSinkCount = sinks.filter(({ state }) => state === "idle" || state === "delivering").length;
  const maxLag = Math.max(0, ...sinks.map(({ depth, again }) => (depth === null ? 0 : depth + again)));
  const isLagExact = sinks.every((sink) => sink.exact || sink.depth + sink.again < maxLag);
  const lagText = sinks.some(({ depth }) => depth === null)
    ? "the number of undelivered events is unknown"
    : maxLag === 0
      ? "everything is delivered"
      : `${isLagExact ? "up to" : "at most"} ${countText(maxLag, "event")} behind`;
  return html`<${OverviewTile} name="Sinks" value=${sinks.length === 0 ? "none" : `${workingSinkCount} / ${sinks.length}`}
    mood=${workingSinkCount < sinks.length ? "warn" : ""}>${lagText}<//>`;
}

/** Tile with the state of tag writing. The page can only stop writing; the command line resumes it. */
function WritingTile({ commands }) {
  if (commands === null) return null;
  const [value, mood, detailText] = !commands.enabled
    ? ["switched off", "", "Plenum writes nothing"]
    : commands.stopped
      ? ["stopped", "bad", "by the kill switch"]
      : commands.rehearsal
        ? ["rehearsal", "", "Plenum checks commands and writes nothing"]
        : ["armed", "warn", `${countText(commands.writable, "tag")} may be written`];
  const stopWriting = async () => (await post("/api/writes/stop")).message;
  return html`<${OverviewTile} name="Writing" value=${value} mood=${mood}>
    ${detailText} ${commands.waiting > 0 ? ` · ${valueText(commands.waiting)} waiting` : ""}
    ${commands.locks.count > 0 ? ` · ${countText(commands.locks.count, "active lock")}, next end ${at(commands.locks.nextEnd, nowMs())}` : ""}${" "}
    ${commands.enabled && !commands.stopped && html`<${ConfirmButton} kind="stop" name="stop writing" again="click again to stop" done=${stopWriting} />`}<//>`;
}

function SinksPanel({ sinks }) {
  const head = [["sink"], ["state"], ...["behind", "oldest", "refused", "lost"].map((name) => [name, "n"])];
  const rows = sinks.map((sink) => html`<${SinkRows} key=${sink.sink} sink=${sink} />`);
  return html`<${Panel} kind="sinks" title="Sinks" note="where data and alarms are sent">
    <${Table} rows=${rows} head=${head} none="None is configured." />
    ${sinks.some(({ depth }) => depth === null) && html`<p class="quiet">? means unknown: the sink was never started.</p>`}
    ${sinks.some(({ depth, exact }) => depth !== null && !exact) && html`<p class="quiet">≤ marks an upper bound: too many events are waiting to count them exactly.</p>`}
  <//>`;
}

function SinkRows({ sink: { sink, connector, state, depth, again, exact, oldest, deadLetters, dropped, problem } }) {
  const lossCells = [deadLetters, dropped].map(
    (n) => html`<td class=${`n ${n > 0 ? "warn" : ""}`}>${n === null ? unknownMark() : valueText(n)}</td>`,
  );
  return html`<tr>
      <td><a href=${viewAddress("sink", [sink])}>${sink}</a> <span class="of">${connector ?? ""}</span></td>
      <td><span class=${`state ${state}`}>${state}</span></td>
      <td class="n">${depth === null ? unknownMark() : `${exact ? "" : "≤ "}${valueText(depth + again)}`}</td>
      <td class="n">${oldest === null ? "–" : html`<${Age} of=${oldest} />`}</td>
      ${lossCells}
    </tr>
    ${problem !== null && html`<tr class="below"><td colspan="6" class="problem">${problem}</td></tr>`}`;
}

function SitesPanel({ sources }) {
  const tableHead = [["site"], ["tags", "n"], ["gateways", "n"], ["active alarms"]];
  const rows = sitesOfSources(sources).map(
    ({ source, id, displayName, tags, gateways: { online, all }, alarms }) => html`<tr key=${`${source} ${id}`}>
      <td><a href=${siteAddress(source, id)}>${displayName}</a></td>
      <td class="n">${tags === null ? unknownMark() : valueText(tags)}</td>
      <td class=${`n ${online !== null && online < all ? "warn" : ""}`}>${online ?? unknownMark()} / ${all ?? unknownMark()}</td>
      <td><${PriorityCounts} counts=${alarms} /></td>
    </tr>`,
  );
  return html`<${Panel} kind="sites" title="Sites" note="open a site to see its details or to silence it">
    ${rows.length > 0 && html`<${Table} kind="choice" rows=${rows} head=${tableHead} />`}
    ${sources.map((source) => html`<${UnreliableCountWarning} key=${source.name} reading=${source.readings.sites} what="sites" />`)}
  <//>`;
}

function EventsPanel({ events }) {
  return html`<${Panel} kind="events" title="Events" note="newest first, without values">
    <${StaleWarning} answer=${events} />
    <ol class="scroll" tabindex="0" aria-label="Events">${events.data.map(
      ({ position, time, type, summary }) => html`<li key=${position}>
        <${At} time=${time} />
        <span class=${`kind ${type}`}>${type}</span>
        <span>${summary}</span>
      </li>`,
    )}</ol>
    ${events.data.length === 0 && events.atMs !== null && html`<p class="quiet">None yet.</p>`}
  <//>`;
}

function ConfigurationPanel({ configuration }) {
  if (configuration === null) return null;
  const { file, last, pending, refused } = configuration;
  const lastConfigChanges = last?.changes ?? [];
  if (refused === null && pending.length === 0 && lastConfigChanges.length === 0) return null;
  return html`<${Panel} kind="silences" title="Configuration" note=${file}>
    ${refused !== null && html`<p class="problem">The file has errors. The previous configuration stays in force.</p>`}
    <ul>${(refused ?? []).map((problem) => html`<li key=${problem}>${problem}</li>`)}</ul>
    ${pending.length > 0 && html`<p class="warn">These changes need a restart:</p>`}
    <${ConfigChangeList} changes=${pending} />
    ${lastConfigChanges.length > 0 && html`<p class="of">Changed while the worker ran: <${At} time=${last.at} /></p>`}
    <${ConfigChangeList} changes=${lastConfigChanges} />
  <//>`;
}

function ConfigChangeList({ changes }) {
  return html`<ul class="scroll">${changes.map(
    ({ path, before, after, how }) => html`<li key=${path}>
      <b>${path}</b> <span class="of">${before ?? "–"} → ${after ?? "–"}</span> <span class="of">${how}</span>
    </li>`,
  )}</ul>`;
}
