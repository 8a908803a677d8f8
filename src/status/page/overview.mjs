import { html, useState } from "/htm.mjs";
import { order } from "/order.mjs";
import { ago, at, counted, doubt, shown } from "/words.mjs";

/** What is seen at first sight: does it work, what needs a person, and the figures. */

export function Header({ report, lost, now }) {
  const [mood, words] =
    lost !== null
      ? ["lost", "no answer"]
      : report.notices.length > 0
        ? ["trouble", "needs attention"]
        : ["well", "all is well"];
  return html`<header>
    <h1><img src="/favicon.svg" alt="" /> Plenum</h1>
    <p class=${`pulse ${mood}`} role="status">${words}</p>
    <p class="of">
      ${at(report.now, now)} · ${report.startedAt === null ? "no worker is running" : `started ${ago(report.startedAt, now)}`} · version ${report.version}
    </p>
  </header>`;
}

/** Nobody may take what stands below for the present. */
export function Lost({ lost, clockMs }) {
  if (lost === null) return null;
  const since = new Date(lost.sinceMs).toISOString();
  return html`<section class="gone" role="alert">
    <b>The worker ${lost.what} since ${at(since, clockMs)}, ${ago(since, clockMs)}.</b>
    What you see is old: it is from then, and its ages go on counting.
  </section>`;
}

export function Notices({ notices }) {
  if (notices.length === 0) return null;
  return html`<section class="notices" aria-label="Attention">
    <ul>${notices.map((text) => html`<li>${text}</li>`)}</ul>
  </section>`;
}

function Tile({ name, value, mood = "", children }) {
  return html`<div class="tile">
    <h2>${name}</h2>
    <p class=${`figure ${mood}`}>${value}</p>
    <p class="of">${children}</p>
  </div>`;
}

export function Priorities({ counts }) {
  if (counts === null) return html`<span class="of">unknown</span>`;
  return Object.entries(counts)
    .toSorted(([a], [b]) => (a < b ? -1 : 1))
    .map(([priority, count]) => html`<span class=${`priority p${priority}`}>${priority} ${count}</span>`);
}

/** The sum of a number over all sources with what is in doubt about it: one that is not known is no 0. */
function summed(sources, name, now) {
  const readings = sources.map((source) => [source, source.readings[name]]);
  const states = readings.map(([, { state }]) => state);
  const held = readings.reduce((sum, [, reading]) => sum + reading.held, 0);
  const isKnown = states.every((state) => state === "whole" || state === "part");
  const value = !isKnown ? "unknown" : states.includes("part") ? `${shown(held)} +` : shown(held);
  const doubts = readings.flatMap(([source, reading]) => {
    const words = doubt(reading, name, now);
    return words === null ? [] : [sources.length > 1 ? `${source.name}: ${words}` : words];
  });
  return { value, isKnown, doubts };
}

function AlarmsTile({ sources, sites, now }) {
  const { value, isKnown, doubts } = summed(sources, "alarms", now);
  const counts = {};
  for (const [priority, count] of sites.flatMap((site) => Object.entries(site.alarms ?? {}))) {
    counts[priority] = (counts[priority] ?? 0) + count;
  }
  return html`<${Tile} name="Active alarms" value=${value} mood=${isKnown ? "" : "unknown"}>
    <${Priorities} counts=${counts} />
    ${doubts.length > 0 ? html`<b class="warn">${doubts.join("; ")}</b>` : Object.keys(counts).length === 0 && "the service lists none"}<//>`;
}

function GatewaysTile({ report, sites, now }) {
  const { isKnown, doubts } = summed(report.sources, "gateways", now);
  const sum = (of) => sites.reduce((total, site) => total + (of(site.gateways) ?? 0), 0);
  const [online, all, unclear] = [
    sum((each) => each.online),
    sum((each) => each.all),
    sum((each) => each.unclear),
  ];
  const [known, tags] = ["sites", "tags"].map((name) => {
    const counts = report.sources.map((source) => source.counts[name]);
    return counts.includes(null)
      ? `${name} unknown`
      : counted(
          counts.reduce((a, b) => a + b, 0),
          name.slice(0, -1),
        );
  });
  const mood = !isKnown ? "unknown" : online < all ? "warn" : "";
  return html`<${Tile} name="Gateways online" value=${isKnown ? `${shown(online)} / ${shown(all)}` : "unknown"} mood=${mood}>
    ${doubts.length > 0 && html`<b class="warn">${doubts.join("; ")}</b> · `}${unclear > 0 && isKnown ? `${unclear} do not say · ` : ""}${known} · ${tags}<//>`;
}

function ValuesTile({ sources, now }) {
  const sum = (of) => sources.reduce((total, source) => total + of(source), 0);
  const values = sum((source) => source.counts.values);
  const bad = sum((source) => source.counts.bad);
  const oldest = sources.flatMap((source) => source.oldestValue ?? []).toSorted()[0];
  const live = sources.flatMap((source) => source.jobs.filter((job) => job.name === "live" && job.late));
  const late = live[0]?.lastSuccess;
  return html`<${Tile} name="Values" value=${shown(values)} mood=${live.length > 0 ? "unknown" : ""}>
    ${values === 0 ? "none was read yet" : bad > 0 ? html`<b class="warn">${shown(bad)} unreadable</b>` : "all readable"}${
      live.length > 0 && html` · <b class="warn">read last ${ago(late, now)}</b>`
    }${oldest === undefined ? "" : ` · oldest ${ago(oldest, now)}`}<//>`;
}

function ServiceTile({ sources }) {
  const away = sources.some((source) => source.unavailable.length > 0);
  const late = sources.some((source) => source.jobs.some((job) => job.late));
  const asked = sources.every((source) => source.jobs.some((job) => job.lastSuccess !== null));
  const [value, mood] = away
    ? ["in trouble", "bad"]
    : late
      ? ["late", "warn"]
      : asked
        ? ["answers", "good"]
        : ["unknown", "unknown"];
  return html`<${Tile} name="Service" value=${value} mood=${mood}>
    ${asked || away || late ? "" : "it has not answered yet · "}<${Requests} sources=${sources} /><//>`;
}

function SinksTile({ sinks }) {
  const working = sinks.filter((sink) => sink.state === "idle" || sink.state === "delivering").length;
  const behind = sinks.map((sink) => (sink.depth === null ? null : sink.depth + sink.again));
  const lag = Math.max(0, ...behind.map((events) => events ?? 0));
  const isExact = sinks.every((sink) => sink.exact || sink.depth + sink.again < lag);
  const words = behind.includes(null)
    ? "how far they are behind is unknown"
    : lag === 0
      ? "everything is delivered"
      : `${isExact ? "up to" : "at most"} ${counted(lag, "event")} behind`;
  return html`<${Tile} name="Sinks" value=${sinks.length === 0 ? "none" : `${working} / ${sinks.length}`}
    mood=${working < sinks.length ? "warn" : ""}>${words}<//>`;
}

export function Overview({ report, now }) {
  const { sources, sinks } = report;
  const sites = sources.flatMap((source) => source.sites);
  return html`<section class="tiles" aria-label="Overview">
    <${AlarmsTile} sources=${sources} sites=${sites} now=${now} />
    <${ValuesTile} sources=${sources} now=${now} />
    <${GatewaysTile} report=${report} sites=${sites} now=${now} />
    <${ServiceTile} sources=${sources} />
    <${SinksTile} sinks=${sinks} />
    <${Writing} commands=${report.commands} />
  </section>`;
}

function Requests({ sources }) {
  if (sources.some((source) => source.quota === null)) return "quota unknown";
  const allowances = sources.flatMap((source) => source.quota.buckets);
  const used = allowances.reduce((total, allowance) => total + allowance.used, 0);
  const allowed = allowances.reduce((total, allowance) => total + allowance.perMinute, 0);
  return allowed === 0 ? "no tag request yet" : `${used} of ${allowed} requests used`;
}

/** Asks once more before it stops, and says when it may not; letting go again is for a person at the machine. */
function StopWriting() {
  const [asked, ask] = useState(false);
  const [refusal, refuse] = useState("");
  const stop = async () => {
    if (!asked) return ask(true);
    refuse(await order("/api/writes/stop"));
  };
  return html`<button type="button" class="stop" onClick=${stop} onBlur=${() => ask(false)}>
    ${asked ? "click again to stop" : "stop writing"}</button> ${refusal}`;
}

function Writing({ commands }) {
  if (commands === null) return null;
  const [value, mood, words] = !commands.enabled
    ? ["off", "", "nothing is ever written"]
    : commands.stopped
      ? ["stopped", "bad", "by the kill switch"]
      : commands.rehearsal
        ? ["rehearsal", "", "checked and answered, not written"]
        : ["armed", "warn", `${counted(commands.writable, "tag")} may be written`];
  return html`<${Tile} name="Writing" value=${value} mood=${mood}>
    ${words}${commands.waiting > 0 ? ` · ${commands.waiting} waiting` : ""}
    ${commands.enabled && !commands.stopped && html`<${StopWriting} />`}<//>`;
}
