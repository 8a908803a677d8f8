import { Age, Now, nowMs } from "/clock.mjs";
import { html } from "/htm.mjs";
import { t } from "/language.mjs";
import { order } from "/order.mjs";
import { Priorities, Twice } from "/parts.mjs";
import { ago, counted, doubt, shown } from "/words.mjs";

/** The figures at the top of the page. */

function Tile({ name, value, mood = "", children }) {
  return html`<div class="tile">
    <h2>${name}</h2>
    <p class=${`figure ${mood}`}>${value}</p>
    <p class="of">${children}</p>
  </div>`;
}

const isSure = ({ state }) => state === "whole" || state === "part";

/** The sum of a number over all sources with what is in doubt about it: one that is not known is no 0. */
function summed(sources, name) {
  const readings = sources.map((source) => [source, source.readings[name]]);
  const states = readings.map(([, { state }]) => state);
  const held = readings.reduce((sum, [, reading]) => sum + reading.held, 0);
  const isKnown = readings.every(([, reading]) => isSure(reading));
  const value = !isKnown ? t("unknown") : states.includes("part") ? `${shown(held)} +` : shown(held);
  const doubts = (now) =>
    readings.flatMap(([source, reading]) => {
      const words = doubt(reading, name, now);
      return words === null ? [] : [sources.length > 1 ? `${source.name}: ${words}` : words];
    });
  return { value, isKnown, isDoubted: doubts(nowMs()).length > 0, doubts: (now) => doubts(now).join("; ") };
}

function AlarmsTile({ sources, sites }) {
  const { value, isKnown, isDoubted, doubts } = summed(sources, "alarms");
  const counts = {};
  for (const [priority, count] of sites.flatMap((site) => Object.entries(site.alarms ?? {}))) {
    counts[priority] = (counts[priority] ?? 0) + count;
  }
  return html`<${Tile} name=${t("Active alarms")} value=${value} mood=${isKnown ? "" : "unknown"}>
    <${Priorities} counts=${counts} />
    ${isDoubted ? html`<b class="warn"><${Now} say=${doubts} /></b>` : Object.keys(counts).length === 0 && t("the service lists none")}<//>`;
}

function GatewaysTile({ report, sites }) {
  const { isKnown, isDoubted, doubts } = summed(report.sources, "gateways");
  const sum = (of) => sites.reduce((total, site) => total + (of(site.gateways) ?? 0), 0);
  const [online, all, unclear] = [sum((each) => each.online), sum((each) => each.all), sum((each) => each.unclear)];
  const [known, tags] = ["sites", "tags"].map((name) => {
    const counts = report.sources.map((source) => source.counts[name]);
    return counts.includes(null)
      ? t(`${name} unknown`)
      : counted(
          counts.reduce((a, b) => a + b, 0),
          name.slice(0, -1),
        );
  });
  const mood = !isKnown ? "unknown" : online < all ? "warn" : "";
  return html`<${Tile} name=${t("Gateways online")} value=${isKnown ? `${shown(online)} / ${shown(all)}` : t("unknown")} mood=${mood}>
    ${isDoubted && html`<b class="warn"><${Now} say=${doubts} /></b> · `}${unclear > 0 && isKnown ? `${t("{count} unknown", { count: shown(unclear) })} · ` : ""}${known} · ${tags}<//>`;
}

function ValuesTile({ sources }) {
  const sum = (of) => sources.reduce((total, source) => total + of(source), 0);
  const values = sum((source) => source.counts.values);
  const bad = sum((source) => source.counts.bad);
  const oldest = sources.flatMap((source) => source.oldestValue ?? []).toSorted()[0];
  const live = sources.flatMap((source) => source.jobs.filter((job) => job.name === "live" && job.late));
  return html`<${Tile} name=${t("Values")} value=${shown(values)} mood=${live.length > 0 ? "unknown" : ""}>
    ${values === 0 ? t("none was read yet") : bad > 0 ? html`<a class="warn" href="#/tags?show=bad">${t("{count} unreadable", { count: shown(bad) })}</a>` : t("all readable")}${
      live.length > 0 &&
      html` · <b class="warn"><${Now} say=${(now) => t("read last {ago}", { ago: ago(live[0].lastSuccess, now) })} /></b>`
    }${oldest !== undefined && html` · ${t("oldest")} <${Age} of=${oldest} />`}<//>`;
}

function ServiceTile({ sources }) {
  const away = sources.some((source) => source.unavailable.length > 0);
  const late = sources.some((source) => source.jobs.some((job) => job.late));
  const asked = sources.every((source) => source.jobs.some((job) => job.lastSuccess !== null));
  const [value, mood] = away
    ? [t("in trouble"), "bad"]
    : late
      ? [t("late"), "warn"]
      : asked
        ? [t("answers"), "good"]
        : [t("unknown"), "unknown"];
  return html`<${Tile} name=${t("Monitoring service")} value=${value} mood=${mood}>
    ${asked || away || late ? "" : `${t("it has not answered yet")} · `}<${Requests} sources=${sources} /><//>`;
}

function SinksTile({ sinks }) {
  const working = sinks.filter((sink) => sink.state === "idle" || sink.state === "delivering").length;
  const behind = sinks.map((sink) => (sink.depth === null ? null : sink.depth + sink.again));
  const lag = Math.max(0, ...behind.map((events) => events ?? 0));
  const isExact = sinks.every((sink) => sink.exact || sink.depth + sink.again < lag);
  const words = behind.includes(null)
    ? t("how far they are behind is unknown")
    : lag === 0
      ? t("everything is delivered")
      : t(isExact ? "up to {events} behind" : "at most {events} behind", { events: counted(lag, "event") });
  return html`<${Tile} name=${t("Sinks")} value=${sinks.length === 0 ? t("none") : `${working} / ${sinks.length}`}
    mood=${working < sinks.length ? "warn" : ""}>${words}<//>`;
}

export function Overview({ report }) {
  const { sources, sinks } = report;
  const sites = sources.flatMap((source) => source.sites);
  return html`<section class="tiles" aria-label=${t("Overview")}>
    <${AlarmsTile} sources=${sources} sites=${sites} />
    <${ValuesTile} sources=${sources} />
    <${GatewaysTile} report=${report} sites=${sites} />
    <${ServiceTile} sources=${sources} />
    <${SinksTile} sinks=${sinks} />
    <${Writing} commands=${report.commands} />
  </section>`;
}

function Requests({ sources }) {
  if (sources.some((source) => source.quota === null)) return t("quota unknown");
  const allowances = sources.flatMap((source) => source.quota.buckets);
  const used = allowances.reduce((total, allowance) => total + allowance.used, 0);
  const allowed = allowances.reduce((total, allowance) => total + allowance.perMinute, 0);
  return allowed === 0 ? t("no tag request yet") : t("{used} of {allowed} requests used", { used, allowed });
}

/** Asks once more before it stops, and says when it may not; letting go again is for a person at the machine. */
function StopWriting() {
  return html`<${Twice} kind="stop" name=${t("stop writing")} again=${t("click again to stop")}
    done=${() => order("/api/writes/stop")} />`;
}

function Writing({ commands }) {
  if (commands === null) return null;
  const [value, mood, words] = !commands.enabled
    ? [t("switched off"), "", t("nothing is ever written")]
    : commands.stopped
      ? [t("stopped"), "bad", t("by the kill switch")]
      : commands.rehearsal
        ? [t("rehearsal"), "", t("checked and answered, not written")]
        : [t("armed"), "warn", t("{tags} may be written", { tags: counted(commands.writable, "tag") })];
  return html`<${Tile} name=${t("Writing")} value=${value} mood=${mood}>
    ${words} ${commands.waiting > 0 ? ` · ${t("{count} waiting", { count: shown(commands.waiting) })}` : ""}${" "}
    ${commands.enabled && !commands.stopped && html`<${StopWriting} />`}<//>`;
}
