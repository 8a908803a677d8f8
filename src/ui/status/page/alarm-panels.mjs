import {
  alarmAddress,
  ChoiceButtons,
  CommandHint,
  ConfirmButton,
  NewOrderButton,
  needsPassword,
  Panel,
  PasswordHint,
  priorityMark,
  StaleWarning,
  shellArgument,
  UnreliableCountWarning,
  useStableRowOrder,
} from "/components.mjs";
import { at, countText, shortDate, untilText, valueText } from "/formats.mjs";
import { html, useState } from "/htm.mjs";
import { post, usePolledData } from "/status-api.mjs";
import { Age, nowMs } from "/worker-clock.mjs";

const EMPTY_ALARM_LIST = { priorities: {}, rows: [] };
const INITIAL_ALARM_COUNT = 100;
const ALARMS_STEP = 300;
const MAX_ALARMS = 1000;
const MAX_LISTED_SILENCES = 100;
const ALARM_DAYS_POLL_MS = 60_000;

/** Polls active alarms of one `site` ({ source, id }), or of all (null). `more()` lists more; null at the maximum. */
export function usePolledAlarms(site, priority, pollMs) {
  const [limit, setLimit] = useState(INITIAL_ALARM_COUNT);
  const query = {
    ...(site === null ? {} : { source: site.source, site: site.id }),
    ...(priority === null ? {} : { priority }),
    ...(limit === INITIAL_ALARM_COUNT ? {} : { limit: String(limit) }),
  };
  const alarms = usePolledData(`/api/alarms?${new URLSearchParams(query)}`, EMPTY_ALARM_LIST, pollMs);
  return { ...alarms, more: limit === MAX_ALARMS ? null : () => setLimit(Math.min(MAX_ALARMS, limit + ALARMS_STEP)) };
}

const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);
const alarmKey = ({ source, alarm }) => `${source} ${alarm.id}`;

/** Lists active alarms. `site` ({ source, id }) and `priority` restrict the list; null does not. */
export function ActiveAlarms({ alarms, sources, site = null, priority, choose, silenced }) {
  const shownSources = sources.filter((source) => site === null || source.name === site.source);
  const areAlarmsComplete = shownSources.every((source) => source.readings.alarms.state === "whole");
  const { priorities } = alarms.data;
  // Until the response for another priority arrives, matching alarms of the last response are shown.
  const rows = alarms.data.rows.filter(({ alarm }) => priority === null || alarm.trigger.priority === priority);
  const alarmCount = sum(Object.values(priorities));
  const matchingAlarmCount = priority === null ? alarmCount : (priorities[priority] ?? 0);
  const rowOrder = useStableRowOrder(rows, alarmKey, alarms.of);
  const priorityNames = Object.keys(priorities).toSorted();
  const priorityOptions = [
    [null, html`all <b>${valueText(alarmCount)}</b>`],
    ...priorityNames.map((name) => [name, html`${name} <b>${valueText(priorities[name])}</b>`]),
  ];
  return html`<${Panel} kind="alarms" title="Active alarms" note=${areAlarmsComplete ? valueText(alarmCount) : ""} extra=${html`<${NewOrderButton} order=${rowOrder} />`}>
    ${(priorityNames.length > 1 || priority !== null) && html`<div class="filters"><${ChoiceButtons} label="priority" options=${priorityOptions} chosen=${priority} choose=${choose} /></div>`}
    <${StaleWarning} answer=${alarms} />
    ${shownSources.map((source) => html`<${UnreliableCountWarning} key=${source.name} reading=${source.readings.alarms} what="active alarms" />`)}
    ${alarms.of !== null && alarmCount === 0 && areAlarmsComplete && html`<p class="quiet">The service lists none.</p>`}
    ${
      rowOrder.rows.length > 0 &&
      html`<ul class="scroll" tabindex="0" aria-label="Active alarms" ...${rowOrder.hold}>${rowOrder.rows.map(
        (row) => html`<${AlarmRow} key=${alarmKey(row)} row=${row} silenced=${silenced} />`,
      )}</ul>`
    }
    ${
      matchingAlarmCount > rows.length &&
      html`<p class="quiet">and ${valueText(matchingAlarmCount - rows.length)} more
        ${alarms.more !== null && html`<button type="button" class="only" onClick=${alarms.more}>show more</button>`}</p>`
    }
  <//>`;
}

function AlarmRow({ row, silenced }) {
  const { source, alarm, state, tickets, silenced: silence } = row;
  const { displayName, priority } = alarm.trigger;
  const namePrefix = `${displayName}: `;
  return html`<li>
    ${priorityMark(priority)}
    <div>
      <b><a href=${alarmAddress(source, alarm.id)}>${displayName}</a></b>
      <span class="of">${alarm.site.displayName} · since <${Age} of=${alarm.triggeredAt} />${acknowledgementText(alarm)}${state === "active" ? "" : ` · ${state}`} ${
        silence === null &&
        html`<${BeginSilenceForm} name=${displayName} what=${{ source, alarm: alarm.id }} done=${silenced} />`
      }</span>
      <span class="of">${alarm.description.startsWith(namePrefix) ? alarm.description.slice(namePrefix.length) : alarm.description}</span>
      ${tickets.length > 0 && html`<span class="of">sent to ${tickets.map((ticket) => html`<${TicketLink} key=${ticket.sink} ...${ticket} />`)}</span>`}
      ${silence !== null && html`<span class="of"><b class="muted">silenced</b> until ${at(silence.to, nowMs())} by ${silence.madeBy}: ${silence.reason}</span>`}
    </div>
  </li>`;
}

export const acknowledgementText = ({ acknowledged, acknowledgedBy }) =>
  acknowledged ? ` · acknowledged by ${acknowledgedBy ?? "somebody"}` : "";

function TicketLink({ sink, ticket, link, isOpen, isFolded }) {
  const ticketName = `${sink}${ticket === null ? "" : ` ${ticket}`}${isFolded ? " (together with others)" : ""}${isOpen ? "" : " (closed)"}`;
  return link === null
    ? html`<span class="ticket">${ticketName}</span> `
    : html`<a class="ticket" href=${link} target="_blank" rel="noreferrer noopener">${ticketName}</a> `;
}

export function AlarmSummaryList({ alarms, none }) {
  if (alarms.length === 0) return html`<p class="quiet">${none}</p>`;
  return html`<ul class="briefs">${alarms.map(
    (alarm) => html`<li key=${`${alarm.id} ${alarm.episode}`}>
      ${priorityMark(alarm.priority)}
      <a href=${alarmAddress(alarm.source, alarm.id, alarm.episode)}>${alarm.name}</a>
      <span class="of">${alarm.state} · ${at(alarm.raisedAt, nowMs())}${alarm.endedAt === null ? "" : ` – ${at(alarm.endedAt, nowMs())}`}</span>
    </li>`,
  )}</ul>`;
}

/** Raised alarms by day as bars, stacked by priority. `bars`: null before the first response. */
export function AlarmDaysPanel({ bars, answer = null }) {
  return html`<${Panel} kind="days" title="Alarms by day" note="raised in the last 30 days">
    ${answer !== null && html`<${StaleWarning} answer=${answer} />`}
    ${bars === null ? html`<div class="bars"></div>` : html`<${AlarmDayBars} bars=${bars} />`}
  <//>`;
}

export function AllSitesAlarmDays() {
  const response = usePolledData("/api/alarm-days", null, ALARM_DAYS_POLL_MS);
  return html`<${AlarmDaysPanel} bars=${response.data} answer=${response} />`;
}

const shortDayText = (day) => shortDate(Date.parse(`${day}T12:00:00Z`));

function AlarmDayBars({ bars: { days, byPriority } }) {
  const priorities = Object.keys(byPriority).toSorted();
  const daySums = days.map((_, n) => sum(priorities.map((priority) => byPriority[priority][n])));
  const totalCount = sum(daySums);
  if (totalCount === 0) return html`<p class="quiet">No alarm was raised.</p>`;
  const maxDaySum = Math.max(...daySums);
  const barsSummary = `${countText(totalCount, "alarm")}; most on ${shortDayText(days[daySums.indexOf(maxDaySum)])}: ${valueText(maxDaySum)}`;
  return html`<div class="bars" role="img" aria-label=${barsSummary}>
      ${days.map((day, n) => {
        const dayPriorities = priorities.filter((priority) => byPriority[priority][n] > 0);
        const countTexts = dayPriorities.map((priority) => `${priority} ${valueText(byPriority[priority][n])}`);
        return html`<i key=${day} class="day" title=${[shortDayText(day), ...countTexts].join(" · ")}>${dayPriorities.map(
          (priority) =>
            html`<i class=${`p${priority}`} style=${{ height: `${(100 * byPriority[priority][n]) / maxDaySum}%` }}></i>`,
        )}</i>`;
      })}
    </div>
    <p class="of ends"><span>${shortDayText(days[0])}</span><span>${barsSummary}</span><span>${shortDayText(days.at(-1))}</span></p>
    ${priorities.length > 1 && html`<p class="of key">${priorities.map((name) => html`<span><i class=${`p${name}`}></i> priority ${name}</span>`)}</p>`}`;
}

const SILENCE_DURATIONS = [
  [60, "1 h"],
  [240, "4 h"],
  [1440, "1 d"],
];
const MAX_REASON_LENGTH = 500;
const silenceCommandFor = ({ source, alarm, site }) =>
  `plenum silence add --source=${shellArgument(source)} ${
    alarm === undefined ? `--site=${site}` : `--alarm=${shellArgument(alarm)}`
  } --for 4h --reason "…"`;

export function BeginSilenceForm({ what, name, done }) {
  const [isOpen, setOpen] = useState(false);
  const [reason, setReason] = useState("");
  const [failure, setFailure] = useState("");
  const label = `silence ${name}`;
  if (needsPassword())
    return html`<${CommandHint} name="silence …" label=${label} command=${silenceCommandFor(what)} />`;
  if (!isOpen)
    return html`<button type="button" class="mute" aria-label=${label} onClick=${() => setOpen(true)}>silence …</button>`;
  const closeForm = () => {
    setOpen(false);
    setReason("");
    setFailure("");
  };
  const startSilence = async (minutes) => {
    const { message } = await post("/api/silences", { ...what, minutes, reason });
    if (message !== null) return setFailure(message);
    closeForm();
    done();
  };
  return html`<span class="begin" role="group" aria-label=${label}>
    <input placeholder="why?" aria-label="reason" maxlength=${MAX_REASON_LENGTH} value=${reason} autocomplete="off"
      onInput=${(event) => setReason(event.target.value)} />
    ${SILENCE_DURATIONS.map(
      ([minutes, length]) => html`<button type="button" class="mute" disabled=${reason.trim() === ""}
        onClick=${() => startSilence(minutes)}>for ${length}</button>`,
    )}
    <button type="button" class="mute" onClick=${closeForm}>cancel</button>
    ${failure !== "" && html`<b class="problem">${failure}</b>`}
  </span>`;
}

/** Button that asks for confirmation, because Plenum sends notifications of active alarms when the silence ends. */
function EndSilenceButton({ id, done }) {
  const command = `plenum silence end ${shellArgument(id)}`;
  const endSilence = async () => {
    const { message } = await post(`/api/silences/${encodeURIComponent(id)}/end`);
    done();
    return message;
  };
  return html`<${ConfirmButton} name="end" again="click again to end" command=${command} done=${endSilence} />`;
}

export function SilencesPanel({ silences, done }) {
  const rows = silences.data;
  return html`<${Panel} kind="silences" title="Silences" note="Plenum sends no tickets, messages or pages for these alarms">
    <${PasswordHint} command="plenum silence" />
    <${StaleWarning} answer=${silences} />
    ${rows.length === 0 && silences.atMs !== null && html`<p class="quiet">None.</p>`}
    <ul class="scroll">${rows.slice(0, MAX_LISTED_SILENCES).map(
      ({ id, alarms, from, to, reason, madeBy, isActive }) => html`<li key=${id} class=${isActive ? "" : "coming"}>
        <b>${alarms}</b>
        <span class="of">${isActive ? "" : `from ${at(from, nowMs())} `}until ${at(to, nowMs())}, ${untilText(isActive ? to : from, nowMs())} · by ${madeBy}</span>
        <span class="of">${reason}</span>
        <${EndSilenceButton} id=${id} done=${done} />
      </li>`,
    )}</ul>
    ${rows.length > MAX_LISTED_SILENCES && html`<p class="quiet">and ${valueText(rows.length - MAX_LISTED_SILENCES)} more</p>`}
  <//>`;
}
