import { Alarms, AllAlarmDays, Silences, useAlarms } from "/alarms.mjs";
import { html } from "/htm.mjs";
import { ago, countText, doubtReason, t, valueText } from "/language.mjs";
import { Doubt, Panel, Priorities, Stale, siteAddress, Table, Twice, unknownMark } from "/shared-components.mjs";
import { Plan, Source } from "/sources.mjs";
import { listQuery, Tags } from "/tags.mjs";
import { amend, viewAddress } from "/view-address.mjs";
import { Age, At, Now, nowMs } from "/worker-clock.mjs";
import { post, usePolled } from "/worker-requests.mjs";

const LISTS_POLL_MS = 6000;
const RARE_CHANGES_POLL_MS = 10_000;
export const sitesOf = (sources) =>
  sources.flatMap((source) => source.sites.map((site) => ({ source: source.name, ...site })));

/** `during`: removes failures from a response while the whole worker is lost. */
export function Overview({ report, query, during }) {
  const { sources, sinks } = report;
  const priority = query.get("priority");
  const alarms = useAlarms(null, priority, LISTS_POLL_MS);
  const events = usePolled("/api/events", [], LISTS_POLL_MS);
  const silences = usePolled("/api/silences", [], RARE_CHANGES_POLL_MS);
  const reloadSilences = () => {
    silences.again();
    alarms.again();
  };
  return html`
    <${Tiles} report=${report} />
    <div class="columns">
      <div>
        <${Alarms} alarms=${during(alarms)} sources=${sources} silenced=${reloadSilences}
          priority=${priority} choose=${(wanted) => amend({ priority: wanted })} />
        <${Tags} query=${listQuery(query)} amend=${amend} sites=${sitesOf(sources)} />
      </div>
      <div>
        <${Sites} sources=${sources} />
        <${AllAlarmDays} />
        <${Silences} silences=${during(silences)} done=${reloadSilences} />
        <${Configuration} configuration=${report.configuration ?? null} />
        ${sources.map((source) => html`<${Plan} key=${source.name} source=${source} several=${sources.length > 1} />`)}
        <${Sinks} sinks=${sinks} />
        ${sources.map((source) => html`<${Source} key=${source.name} source=${source} />`)}
        <${Events} events=${during(events)} />
      </div>
    </div>`;
}

function Tile({ name, value, mood = "", children }) {
  return html`<div class="tile">
    <h2>${name}</h2>
    <p class=${`figure ${mood}`}>${value}</p>
    <p class="of">${children}</p>
  </div>`;
}

const sum = (numbers) => numbers.reduce((total, each) => total + each, 0);

function sumReadings(sources, name) {
  const readings = sources.map((source) => [source, source.readings[name]]);
  const states = readings.map(([, { state }]) => state);
  const countSum = sum(readings.map(([, reading]) => reading.held));
  const isKnown = states.every((state) => state === "whole" || state === "part");
  const value = !isKnown ? t("unknown") : states.includes("part") ? `${valueText(countSum)} +` : valueText(countSum);
  const doubtWords = (now) =>
    readings
      .flatMap(([source, reading]) => {
        const words = doubtReason(reading, name, now);
        return words === null ? [] : [sources.length > 1 ? `${source.name}: ${words}` : words];
      })
      .join("; ");
  const warning = doubtWords(nowMs()) !== "" && html`<b class="warn"><${Now} say=${doubtWords} /></b>`;
  return { value, isKnown, warning };
}

function Tiles({ report }) {
  const { sources, sinks } = report;
  const sites = sitesOf(sources);
  return html`<section class="tiles" aria-label=${t("Overview")}>
    <${AlarmsTile} sources=${sources} sites=${sites} />
    <${ValuesTile} sources=${sources} />
    <${GatewaysTile} sources=${sources} sites=${sites} />
    <${ServiceTile} sources=${sources} />
    <${SinksTile} sinks=${sinks} />
    <${WritingTile} commands=${report.commands} />
  </section>`;
}

function AlarmsTile({ sources, sites }) {
  const { value, isKnown, warning } = sumReadings(sources, "alarms");
  const counts = {};
  for (const [priority, count] of sites.flatMap((site) => Object.entries(site.alarms ?? {})))
    counts[priority] = (counts[priority] ?? 0) + count;
  return html`<${Tile} name=${t("Active alarms")} value=${value} mood=${isKnown ? "" : "unknown"}>
    <${Priorities} counts=${counts} />
    ${warning || (Object.keys(counts).length === 0 && t("the service lists none"))}<//>`;
}

function GatewaysTile({ sources, sites }) {
  const { isKnown, warning } = sumReadings(sources, "gateways");
  const count = (name) => sum(sites.map(({ gateways }) => gateways[name] ?? 0));
  const [online, all, unclear] = ["online", "all", "unclear"].map(count);
  const lists = ["sites", "tags"].map((name) => {
    const counts = sources.map((source) => source.counts[name]);
    return counts.includes(null) ? t(`${name} unknown`) : countText(sum(counts), name.slice(0, -1));
  });
  const mood = !isKnown ? "unknown" : online < all ? "warn" : "";
  return html`<${Tile} name=${t("Gateways online")} value=${isKnown ? `${valueText(online)} / ${valueText(all)}` : t("unknown")} mood=${mood}>
    ${warning && html`${warning} · `}${unclear > 0 && isKnown ? `${t("{count} unknown", { count: valueText(unclear) })} · ` : ""}${lists.join(" · ")}<//>`;
}

function ValuesTile({ sources }) {
  const values = sum(sources.map(({ counts }) => counts.values));
  const bad = sum(sources.map(({ counts }) => counts.bad));
  const [oldest] = sources.flatMap((source) => source.oldestValue ?? []).toSorted();
  const [lateJob] = sources.flatMap((source) => source.jobs.filter((job) => job.name === "live" && job.late));
  const readableWords =
    bad > 0
      ? html`<a class="warn" href="#/tags?show=bad">${t("{count} unreadable", { count: valueText(bad) })}</a>`
      : t("all readable");
  return html`<${Tile} name=${t("Values")} value=${valueText(values)} mood=${lateJob === undefined ? "" : "unknown"}>
    ${values === 0 ? t("none was read yet") : readableWords}${
      lateJob !== undefined &&
      html` · <b class="warn"><${Now} say=${(now) => t("read last {ago}", { ago: ago(lateJob.lastSuccess, now) })} /></b>`
    }${oldest !== undefined && html` · ${t("oldest")} <${Age} of=${oldest} />`}<//>`;
}

function ServiceTile({ sources }) {
  const hasResponded = sources.every((source) => source.jobs.some((job) => job.lastSuccess !== null));
  const [value, mood] = sources.some(({ unavailable }) => unavailable.length > 0)
    ? [t("unavailable"), "bad"]
    : sources.some(({ jobs }) => jobs.some((job) => job.late))
      ? [t("late"), "warn"]
      : hasResponded
        ? [t("responds"), "good"]
        : [t("unknown"), "unknown"];
  return html`<${Tile} name=${t("Monitoring service")} value=${value} mood=${mood}>
    ${mood === "unknown" ? `${t("it has not responded yet")} · ` : ""}${requestWords(sources)}<//>`;
}

function requestWords(sources) {
  if (sources.some((source) => source.quota === null)) return t("quota unknown");
  const buckets = sources.flatMap((source) => source.quota.buckets);
  const [used, allowed] = [sum(buckets.map((each) => each.used)), sum(buckets.map((each) => each.perMinute))];
  return allowed === 0 ? t("no tag request yet") : t("{used} of {allowed} requests used", { used, allowed });
}

function SinksTile({ sinks }) {
  const workingCount = sinks.filter(({ state }) => state === "idle" || state === "delivering").length;
  const lag = Math.max(0, ...sinks.map(({ depth, again }) => (depth === null ? 0 : depth + again)));
  const isExact = sinks.every((sink) => sink.exact || sink.depth + sink.again < lag);
  const words = sinks.some(({ depth }) => depth === null)
    ? t("the number of undelivered events is unknown")
    : lag === 0
      ? t("everything is delivered")
      : t(isExact ? "up to {events} behind" : "at most {events} behind", { events: countText(lag, "event") });
  return html`<${Tile} name=${t("Sinks")} value=${sinks.length === 0 ? t("none") : `${workingCount} / ${sinks.length}`}
    mood=${workingCount < sinks.length ? "warn" : ""}>${words}<//>`;
}

/** Writing can be stopped here, and resumed only by the command line. */
function WritingTile({ commands }) {
  if (commands === null) return null;
  const [value, mood, words] = !commands.enabled
    ? [t("switched off"), "", t("Plenum writes nothing")]
    : commands.stopped
      ? [t("stopped"), "bad", t("by the kill switch")]
      : commands.rehearsal
        ? [t("rehearsal"), "", t("Plenum checks commands and writes nothing")]
        : [t("armed"), "warn", t("{tags} may be written", { tags: countText(commands.writable, "tag") })];
  const stopWriting = async () => (await post("/api/writes/stop")).message;
  return html`<${Tile} name=${t("Writing")} value=${value} mood=${mood}>
    ${words} ${commands.waiting > 0 ? ` · ${t("{count} waiting", { count: valueText(commands.waiting) })}` : ""}${" "}
    ${commands.enabled && !commands.stopped && html`<${Twice} kind="stop" name=${t("stop writing")} again=${t("click again to stop")} done=${stopWriting} />`}<//>`;
}

function Sinks({ sinks }) {
  const head = [[t("sink")], [t("state")], ...["behind", "oldest", "refused", "lost"].map((name) => [t(name), "n"])];
  const rows = sinks.map((sink) => html`<${Sink} key=${sink.sink} sink=${sink} />`);
  return html`<${Panel} kind="sinks" title=${t("Sinks")} note=${t("where data and alarms are sent")}>
    <${Table} rows=${rows} head=${head} none=${t("None is configured.")} />
    ${sinks.some(({ depth }) => depth === null) && html`<p class="quiet">${t("? means unknown: the sink was never started.")}</p>`}
    ${sinks.some(({ depth, exact }) => depth !== null && !exact) && html`<p class="quiet">${t("≤ marks an upper bound: too many events are waiting to count them exactly.")}</p>`}
  <//>`;
}

function Sink({ sink: { sink, connector, state, depth, again, exact, oldest, deadLetters, dropped, problem } }) {
  const losses = [deadLetters, dropped].map(
    (n) => html`<td class=${`n ${n > 0 ? "warn" : ""}`}>${n === null ? unknownMark() : valueText(n)}</td>`,
  );
  return html`<tr>
      <td><a href=${viewAddress("sink", [sink])}>${sink}</a> <span class="of">${connector ?? ""}</span></td>
      <td><span class=${`state ${state}`}>${t(state)}</span></td>
      <td class="n">${depth === null ? unknownMark() : `${exact ? "" : "≤ "}${valueText(depth + again)}`}</td>
      <td class="n">${oldest === null ? "–" : html`<${Age} of=${oldest} />`}</td>
      ${losses}
    </tr>
    ${problem !== null && html`<tr class="below"><td colspan="6" class="problem" lang="en">${problem}</td></tr>`}`;
}

/** Sites of several sources may have the same id, so the address contains both. */
function Sites({ sources }) {
  const head = [[t("site")], [t("tags"), "n"], [t("gateways"), "n"], [t("active alarms")]];
  const rows = sitesOf(sources).map(
    ({ source, id, displayName, tags, gateways: { online, all }, alarms }) => html`<tr key=${`${source} ${id}`}>
      <td><a href=${siteAddress(source, id)}>${displayName}</a></td>
      <td class="n">${tags === null ? unknownMark() : valueText(tags)}</td>
      <td class=${`n ${online !== null && online < all ? "warn" : ""}`}>${online ?? unknownMark()} / ${all ?? unknownMark()}</td>
      <td><${Priorities} counts=${alarms} /></td>
    </tr>`,
  );
  return html`<${Panel} kind="sites" title=${t("Sites")} note=${t("open a site to see its details or to silence it")}>
    ${rows.length > 0 && html`<${Table} kind="choice" rows=${rows} head=${head} />`}
    ${sources.map((source) => html`<${Doubt} key=${source.name} reading=${source.readings.sites} what="sites" />`)}
  <//>`;
}

function Events({ events }) {
  return html`<${Panel} kind="events" title=${t("Events")} note=${t("newest first, without values")}>
    <${Stale} answer=${events} />
    <ol class="scroll" tabindex="0" aria-label=${t("Events")}>${events.data.map(
      ({ position, time, type, gist }) => html`<li key=${position}>
        <${At} time=${time} />
        <span class=${`kind ${type}`}>${type}</span>
        <span>${gist}</span>
      </li>`,
    )}</ol>
    ${events.data.length === 0 && events.atMs !== null && html`<p class="quiet">${t("None yet.")}</p>`}
  <//>`;
}

/** Result of the last change of the configuration file, and changes that wait for a restart. */
function Configuration({ configuration }) {
  if (configuration === null) return null;
  const { file, last, pending, refused } = configuration;
  const changes = last?.changes ?? [];
  if (refused === null && pending.length === 0 && changes.length === 0) return null;
  return html`<${Panel} kind="silences" title=${t("Configuration")} note=${html`<span lang="en">${file}</span>`}>
    ${refused !== null && html`<p class="problem">${t("The file has errors. The previous configuration stays in force.")}</p>`}
    <ul lang="en">${(refused ?? []).map((problem) => html`<li key=${problem}>${problem}</li>`)}</ul>
    ${pending.length > 0 && html`<p class="warn">${t("These changes need a restart:")}</p>`}
    <${Changes} changes=${pending} />
    ${changes.length > 0 && html`<p class="of">${t("Changed while the worker ran:")} <${At} time=${last.at} /></p>`}
    <${Changes} changes=${changes} />
  <//>`;
}

function Changes({ changes }) {
  return html`<ul class="scroll" lang="en">${changes.map(
    ({ path, before, after, how }) => html`<li key=${path}>
      <b>${path}</b> <span class="of">${before ?? "–"} → ${after ?? "–"}</span> <span class="of">${how}</span>
    </li>`,
  )}</ul>`;
}
