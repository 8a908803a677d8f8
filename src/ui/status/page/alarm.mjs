import { AlarmBriefs, acknowledgement, BeginSilence } from "/alarms.mjs";
import { TagPlot } from "/chart.mjs";
import { html } from "/htm.mjs";
import { span, t } from "/language.mjs";
import {
  CopyAddress,
  Head,
  Missing,
  Panel,
  priorityMark,
  Stale,
  siteAddress,
  Table,
  tagAddress,
} from "/shared-components.mjs";
import { viewAddress } from "/view-address.mjs";
import { Age, At, Now, nowMs } from "/worker-clock.mjs";
import { usePolled } from "/worker-requests.mjs";

const ALARM_POLL_MS = 4000;
const PHASES = {
  raised: "active",
  retriggered: "active",
  acknowledged: "acknowledged",
  recovering: "recovering",
  resolved: "over",
  vanished: "doubtful",
  "out of scope": "doubtful",
};

const MARK_COLOURS = { raised: "bad", acknowledged: "warn", resolved: "good" };

export function View({ parts: [source = "", id = "", episode = ""], query }) {
  const parameters = new URLSearchParams({ source, id, ...(episode === "" ? {} : { episode }) });
  const answer = usePolled(`/api/alarm?${parameters}`, null, ALARM_POLL_MS);
  if (answer.data === null || answer.missing) return html`<${Missing} answer=${answer} what="alarm" />`;
  const { brief, alarm, life, tag, sinks, episodes } = answer.data;
  const marks = life
    .filter(({ what }) => what in MARK_COLOURS)
    .map(({ at, what }) => ({ t: Date.parse(at) / 1000, colour: MARK_COLOURS[what] }));
  return html`
    <${Head} name=${brief.name} above=${[[brief.site, siteAddress(source, alarm.site.id)], [t("Alarm"), null]]}>
      <p>${priorityMark(brief.priority)} <b class=${brief.endedAt === null ? "bad" : "good"}>${t(brief.state)}</b> · ${t("raised")} <${Age} of=${brief.raisedAt} />${acknowledgement(alarm)}</p>
      <p>${alarm.description}</p>
      <p class="of">${t("id {id}", { id })} · <a href=${viewAddress("source", [source])}>${source}</a> <${CopyAddress} />
        ${brief.endedAt === null && html` <${BeginSilence} name=${brief.name} what=${{ source, alarm: id }} done=${answer.again} />`}</p>
    </${Head}>
    <${Stale} answer=${answer} />
    <${Timeline} life=${life} isOver=${brief.endedAt !== null} />
    ${
      tag !== null &&
      html`<p class="of about">${t("Tag named in the alarm:")} <a href=${tagAddress(tag.source, tag.id)}>${tag.displayName}</a></p>
      <${TagPlot} source=${tag.source} id=${tag.id} query=${query} marks=${marks} name=${tag.displayName} />`
    }
    <div class="halves">
      <${Delivery} sinks=${sinks} />
      <${Panel} level="h3" title=${t("Earlier alarms of this kind")}>
        <${AlarmBriefs} alarms=${episodes.filter((each) => each.episode !== brief.episode)} none=${t("No earlier alarm is known.")} /><//>
    </div>`;
}

function Timeline({ life, isOver }) {
  if (life.length === 0) return null;
  const times = life.map(({ at }) => Date.parse(at));
  const [beginMs] = times;
  const endMs = isOver ? times.at(-1) : nowMs();
  const totalMs = Math.max(1, endMs - beginMs);
  let phase = "active";
  const phases = life.map(({ what }) => {
    phase = PHASES[what] ?? phase;
    return phase;
  });
  const duration = isOver
    ? t("lasted {time}", { time: span(totalMs / 1000) })
    : html`${t("for")} <${Now} say=${(now) => span((now - beginMs) / 1000)} />`;
  return html`<${Panel} kind="life" level="h3" title=${t("Timeline")} note=${duration}>
    <div class="line" aria-hidden="true">${phases.map((each, n) => {
      const share = ((times[n + 1] ?? endMs) - times[n]) / totalMs;
      return share > 0 && html`<i class=${each} style=${{ flexGrow: String(Math.max(share, 0.01)) }}></i>`;
    })}</div>
    <ol>${life.map(
      ({ at, what, words }, n) => html`<li key=${`${at} ${what}`}><i class=${phases[n]}></i> <${At} time=${at} />
        <b>${t(what)}</b> <span lang="en">${words}</span>
        ${n > 0 && html`<span class="of">${t("after {time}", { time: span((times[n] - beginMs) / 1000) })}</span>`}</li>`,
    )}</ol><//>`;
}

const STATE_CLASSES = { delivered: "good", waiting: "warn", "dead letter": "bad" };

function Delivery({ sinks }) {
  const rows = sinks.map(
    ({ sink, connector, state, words, link }) => html`<tr key=${sink}>
      <td><a href=${viewAddress("sink", [sink])}>${sink}</a> <span class="of">${connector ?? ""}</span></td>
      <td><b class=${STATE_CLASSES[state] ?? ""}>${t(state)}</b> <span class="of" lang="en">${words}</span>
        ${link !== null && html` <a href=${link} target="_blank" rel="noreferrer noopener">${t("open")}</a>`}</td></tr>`,
  );
  return html`<${Panel} level="h3" title=${t("Delivery to each sink")}><${Table} kind="listed" rows=${rows} none=${t("None is configured.")} /><//>`;
}
