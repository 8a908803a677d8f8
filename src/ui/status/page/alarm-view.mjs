import { AlarmSummaryList, acknowledgementText, BeginSilenceForm } from "/alarm-panels.mjs";
import { TagPlot } from "/chart.mjs";
import {
  CopyAddress,
  NotFound,
  Panel,
  priorityMark,
  StaleWarning,
  siteAddress,
  Table,
  tagAddress,
  ViewTitle,
} from "/components.mjs";
import { durationText } from "/formats.mjs";
import { html } from "/htm.mjs";
import { usePolledData } from "/status-api.mjs";
import { viewAddress } from "/view-url.mjs";
import { Age, At, CurrentTimeText, nowMs } from "/worker-clock.mjs";

const ALARM_POLL_MS = 4000;
const TIMELINE_PHASES = {
  raised: "active",
  retriggered: "active",
  acknowledged: "acknowledged",
  recovering: "recovering",
  resolved: "over",
  vanished: "doubtful",
  "out of scope": "doubtful",
};

const PLOT_MARK_COLOURS = { raised: "bad", acknowledged: "warn", resolved: "good" };

export function View({ parts: [source = "", id = "", episode = ""], query }) {
  const parameters = new URLSearchParams({ source, id, ...(episode === "" ? {} : { episode }) });
  const response = usePolledData(`/api/alarm?${parameters}`, null, ALARM_POLL_MS);
  if (response.data === null || response.missing) return html`<${NotFound} answer=${response} what="alarm" />`;
  const { brief, alarm, life, tag, sinks, episodes } = response.data;
  const plotMarks = life
    .filter(({ what }) => what in PLOT_MARK_COLOURS)
    .map(({ at, what }) => ({ t: Date.parse(at) / 1000, colour: PLOT_MARK_COLOURS[what] }));
  return html`
    <${ViewTitle} name=${brief.name} above=${[[brief.site, siteAddress(source, alarm.site.id)], ["Alarm", null]]}>
      <p>${priorityMark(brief.priority)} <b class=${brief.endedAt === null ? "bad" : "good"}>${brief.state}</b> · raised <${Age} of=${brief.raisedAt} />${acknowledgementText(alarm)}</p>
      <p>${alarm.description}</p>
      <p class="of">id ${id} · <a href=${viewAddress("source", [source])}>${source}</a> <${CopyAddress} />
        ${brief.endedAt === null && html` <${BeginSilenceForm} name=${brief.name} what=${{ source, alarm: id }} done=${response.again} />`}</p>
    </${ViewTitle}>
    <${StaleWarning} answer=${response} />
    <${AlarmTimeline} life=${life} isOver=${brief.endedAt !== null} />
    ${
      tag !== null &&
      html`<p class="of about">Tag named in the alarm: <a href=${tagAddress(tag.source, tag.id)}>${tag.displayName}</a></p>
      <${TagPlot} source=${tag.source} id=${tag.id} query=${query} marks=${plotMarks} name=${tag.displayName} />`
    }
    <div class="halves">
      <${AlarmDelivery} sinks=${sinks} />
      <${Panel} level="h3" title="Earlier alarms of this kind">
        <${AlarmSummaryList} alarms=${episodes.filter((alarm) => alarm.episode !== brief.episode)} none="No earlier alarm is known." /><//>
    </div>`;
}

function AlarmTimeline({ life, isOver }) {
  if (life.length === 0) return null;
  const stepTimes = life.map(({ at }) => Date.parse(at));
  const [beginMs] = stepTimes;
  const endMs = isOver ? stepTimes.at(-1) : nowMs();
  const timelineMs = Math.max(1, endMs - beginMs);
  let phase = "active";
  const stepPhases = life.map(({ what }) => {
    phase = TIMELINE_PHASES[what] ?? phase;
    return phase;
  });
  const durationLabel = isOver
    ? `lasted ${durationText(timelineMs / 1000)}`
    : html`for <${CurrentTimeText} say=${(now) => durationText((now - beginMs) / 1000)} />`;
  return html`<${Panel} kind="life" level="h3" title="Timeline" note=${durationLabel}>
    <div class="line" aria-hidden="true">${stepPhases.map((stepPhase, n) => {
      const phaseShare = ((stepTimes[n + 1] ?? endMs) - stepTimes[n]) / timelineMs;
      return (
        phaseShare > 0 && html`<i class=${stepPhase} style=${{ flexGrow: String(Math.max(phaseShare, 0.01)) }}></i>`
      );
    })}</div>
    <ol>${life.map(
      ({ at, what, words }, n) => html`<li key=${`${at} ${what}`}><i class=${stepPhases[n]}></i> <${At} time=${at} />
        <b>${what}</b> ${words}
        ${n > 0 && html`<span class="of">after ${durationText((stepTimes[n] - beginMs) / 1000)}</span>`}</li>`,
    )}</ol><//>`;
}

const DELIVERY_STATE_COLOURS = { delivered: "good", waiting: "warn", "dead letter": "bad" };

function AlarmDelivery({ sinks }) {
  const deliveryRows = sinks.map(
    ({ sink, connector, state, words, link }) => html`<tr key=${sink}>
      <td><a href=${viewAddress("sink", [sink])}>${sink}</a> <span class="of">${connector ?? ""}</span></td>
      <td><b class=${DELIVERY_STATE_COLOURS[state] ?? ""}>${state}</b> <span class="of">${words}</span>
        ${link !== null && html` <a href=${link} target="_blank" rel="noreferrer noopener">open</a>`}</td></tr>`,
  );
  return html`<${Panel} level="h3" title="Delivery to each sink"><${Table} kind="listed" rows=${deliveryRows} none="None is configured." /><//>`;
}
