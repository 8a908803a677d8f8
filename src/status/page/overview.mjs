import { html, useState } from "/htm.mjs";
import { ago, at, counted, shown } from "/words.mjs";

/** What is seen at first sight: does it work, what needs a person, and the figures. */

export function Header({ report, lost, now }) {
  const [mood, words] = lost
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

export function Notices({ notices, lost }) {
  const all = lost ? ["The worker does not answer; what you see is old.", ...notices] : notices;
  if (all.length === 0) return null;
  return html`<section class="notices" aria-label="Attention">
    <ul>${all.map((text) => html`<li>${text}</li>`)}</ul>
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
  return Object.entries(counts)
    .toSorted(([a], [b]) => (a < b ? -1 : 1))
    .map(([priority, count]) => html`<span class=${`priority p${priority}`}>${priority} ${count}</span>`);
}

export function Overview({ report, now }) {
  const sites = report.sources.flatMap((source) => source.sites);
  const sum = (of) => report.sources.reduce((total, source) => total + of(source), 0);
  const alarms = {};
  for (const site of sites) {
    for (const [priority, count] of Object.entries(site.alarms)) {
      alarms[priority] = (alarms[priority] ?? 0) + count;
    }
  }
  const online = sites.reduce((total, site) => total + site.gateways.online, 0);
  const gateways = sites.reduce((total, site) => total + site.gateways.all, 0);
  const oldest = report.sources
    .map((source) => source.oldestValue)
    .filter((time) => time !== null)
    .toSorted()[0];
  const bad = sum((source) => source.counts.bad);
  const working = report.sinks.filter((sink) => sink.state === "idle" || sink.state === "delivering").length;
  const lag = Math.max(0, ...report.sinks.map((sink) => sink.depth + sink.again));
  const down = report.sources.filter((source) => source.unavailable.length > 0).length;
  return html`<section class="tiles" aria-label="Overview">
    <${Tile} name="Active alarms" value=${shown(sum((source) => source.counts.alarms))}>
      <${Priorities} counts=${alarms} />${Object.keys(alarms).length === 0 && "the service lists none"}<//>
    <${Tile} name="Values" value=${shown(sum((source) => source.counts.values))}>
      ${bad > 0 ? html`<b class="warn">${bad} unreadable</b>` : "all readable"}${oldest === undefined ? "" : ` · oldest ${ago(oldest, now)}`}<//>
    <${Tile} name="Gateways online" value=${`${online} / ${gateways}`} mood=${online < gateways ? "warn" : ""}>
      ${counted(sites.length, "site")} · ${counted(
        sum((source) => source.counts.tags),
        "tag",
      )}<//>
    <${Tile} name="Service" value=${down > 0 ? "in trouble" : "answers"} mood=${down > 0 ? "bad" : "good"}>
      <${Requests} sources=${report.sources} /><//>
    <${Tile} name="Sinks" value=${report.sinks.length === 0 ? "none" : `${working} / ${report.sinks.length}`}
      mood=${working < report.sinks.length ? "warn" : ""}>
      ${lag === 0 ? "everything is delivered" : `up to ${counted(lag, "event")} behind`}<//>
    <${Writing} commands=${report.commands} />
  </section>`;
}

function Requests({ sources }) {
  const buckets = sources.flatMap((source) => source.quota?.buckets ?? []);
  const used = buckets.reduce((total, bucket) => total + bucket.used, 0);
  const allowed = buckets.reduce((total, bucket) => total + bucket.perMinute, 0);
  return allowed === 0 ? "no tag request yet" : `${used} of ${allowed} requests used`;
}

/** Asks once more before it stops; letting go again is for a person at the machine. */
function StopWriting() {
  const [asked, ask] = useState(false);
  const stop = async () => {
    if (!asked) return ask(true);
    await fetch("/api/writes/stop", { method: "POST", headers: { "x-plenum": "status-page" } });
  };
  return html`<button type="button" class="stop" onClick=${stop} onBlur=${() => ask(false)}>
    ${asked ? "click again to stop" : "stop writing"}</button>`;
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
