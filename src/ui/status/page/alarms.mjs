import { html, useState } from "/htm.mjs";
import { at, countText, dayOf, t, until, valueText } from "/language.mjs";
import {
  alarmAddress,
  argument,
  ByCommand,
  Choice,
  Doubt,
  NewOrder,
  needsPassword,
  Panel,
  PasswordHint,
  priorityMark,
  Stale,
  Twice,
  useStillOrder,
} from "/shared-components.mjs";
import { Age, nowMs } from "/worker-clock.mjs";
import { post, usePolled } from "/worker-requests.mjs";

const NO_ALARMS = { priorities: {}, rows: [] };
/** Alarms shown at first, alarms added by each click, and the most that the worker returns. */
const FIRST_ALARMS = 100;
const ADDED_ALARMS = 300;
const MAX_ALARMS = 1000;
const MOST_SILENCES = 100;
const DAYS_MS = 60_000;

/** Active alarms of all sites, or of one ({ source, id }). `more` shows more alarms; null when there are none. */
export function useAlarms(site, priority, everyMs) {
  const [limit, setLimit] = useState(FIRST_ALARMS);
  const query = {
    ...(site === null ? {} : { source: site.source, site: site.id }),
    ...(priority === null ? {} : { priority }),
    ...(limit === FIRST_ALARMS ? {} : { limit: String(limit) }),
  };
  const alarms = usePolled(`/api/alarms?${new URLSearchParams(query)}`, NO_ALARMS, everyMs);
  return { ...alarms, more: limit === MAX_ALARMS ? null : () => setLimit(Math.min(MAX_ALARMS, limit + ADDED_ALARMS)) };
}

const sum = (numbers) => numbers.reduce((total, each) => total + each, 0);
const alarmKey = ({ source, alarm }) => `${source} ${alarm.id}`;

/** `site` ({ source, id }) and `priority` narrow the list; null shows all. */
export function Alarms({ alarms, sources, site = null, priority, choose, silenced }) {
  const shownSources = sources.filter((source) => site === null || source.name === site.source);
  const isWhole = shownSources.every((source) => source.readings.alarms.state === "whole");
  const { priorities } = alarms.data;
  // Until the response for another priority arrives, show the matching rows of the last one.
  const rows = alarms.data.rows.filter(({ alarm }) => priority === null || alarm.trigger.priority === priority);
  const all = sum(Object.values(priorities));
  const matchingCount = priority === null ? all : (priorities[priority] ?? 0);
  const order = useStillOrder(rows, alarmKey, alarms.of);
  const names = Object.keys(priorities).toSorted();
  const options = [
    [null, html`${t("all")} <b>${valueText(all)}</b>`],
    ...names.map((each) => [each, html`${each} <b>${valueText(priorities[each])}</b>`]),
  ];
  return html`<${Panel} kind="alarms" title=${t("Active alarms")} note=${isWhole ? valueText(all) : ""} extra=${html`<${NewOrder} order=${order} />`}>
    ${(names.length > 1 || priority !== null) && html`<div class="filters"><${Choice} label=${t("priority")} options=${options} chosen=${priority} choose=${choose} /></div>`}
    <${Stale} answer=${alarms} />
    ${shownSources.map((source) => html`<${Doubt} key=${source.name} reading=${source.readings.alarms} what="active alarms" />`)}
    ${alarms.of !== null && all === 0 && isWhole && html`<p class="quiet">${t("The service lists none.")}</p>`}
    ${
      order.rows.length > 0 &&
      html`<ul class="scroll" tabindex="0" aria-label=${t("Active alarms")} ...${order.hold}>${order.rows.map(
        (row) => html`<${Row} key=${alarmKey(row)} row=${row} silenced=${silenced} />`,
      )}</ul>`
    }
    ${
      matchingCount > rows.length &&
      html`<p class="quiet">${t("and {count} more", { count: valueText(matchingCount - rows.length) })}
        ${alarms.more !== null && html`<button type="button" class="only" onClick=${alarms.more}>${t("show more")}</button>`}</p>`
    }
  <//>`;
}

function Row({ row, silenced }) {
  const { source, alarm, state, tickets, silenced: silence } = row;
  const { displayName, priority } = alarm.trigger;
  const prefix = `${displayName}: `;
  return html`<li>
    ${priorityMark(priority)}
    <div>
      <b><a href=${alarmAddress(source, alarm.id)}>${displayName}</a></b>
      <span class="of">${alarm.site.displayName} · ${t("since")} <${Age} of=${alarm.triggeredAt} />${acknowledgement(alarm)}${state === "active" ? "" : ` · ${t(state)}`} ${
        silence === null &&
        html`<${BeginSilence} name=${displayName} what=${{ source, alarm: alarm.id }} done=${silenced} />`
      }</span>
      <span class="of">${alarm.description.startsWith(prefix) ? alarm.description.slice(prefix.length) : alarm.description}</span>
      ${tickets.length > 0 && html`<span class="of">${t("sent to")} ${tickets.map((ticket) => html`<${TicketLink} key=${ticket.sink} ...${ticket} />`)}</span>`}
      ${silence !== null && html`<span class="of"><b class="muted">${t("silenced")}</b> ${t("until {time} by {name}: {reason}", { time: at(silence.to, nowMs()), name: silence.madeBy, reason: silence.reason })}</span>`}
    </div>
  </li>`;
}

export const acknowledgement = ({ acknowledged, acknowledgedBy }) =>
  acknowledged ? ` · ${t("acknowledged by {name}", { name: acknowledgedBy ?? t("somebody") })}` : "";

function TicketLink({ sink, ticket, link, isOpen, isFolded }) {
  const name = `${sink}${ticket === null ? "" : ` ${ticket}`}${isFolded ? ` (${t("together with others")})` : ""}${isOpen ? "" : ` (${t("closed")})`}`;
  return link === null
    ? html`<span class="ticket">${name}</span> `
    : html`<a class="ticket" href=${link} target="_blank" rel="noreferrer noopener">${name}</a> `;
}

export function AlarmBriefs({ alarms, none }) {
  if (alarms.length === 0) return html`<p class="quiet">${none}</p>`;
  return html`<ul class="briefs">${alarms.map(
    (each) => html`<li key=${`${each.id} ${each.episode}`}>
      ${priorityMark(each.priority)}
      <a href=${alarmAddress(each.source, each.id, each.episode)}>${each.name}</a>
      <span class="of">${t(each.state)} · ${at(each.raisedAt, nowMs())}${each.endedAt === null ? "" : ` – ${at(each.endedAt, nowMs())}`}</span>
    </li>`,
  )}</ul>`;
}

/** Alarms by day as bars, stacked by priority; `null` before the first response. */
export function AlarmDays({ bars, answer = null }) {
  return html`<${Panel} kind="days" title=${t("Alarms by day")} note=${t("raised in the last 30 days")}>
    ${answer !== null && html`<${Stale} answer=${answer} />`}
    ${bars === null ? html`<div class="bars"></div>` : html`<${DayBars} bars=${bars} />`}
  <//>`;
}

export function AllAlarmDays() {
  const answer = usePolled("/api/alarm-days", null, DAYS_MS);
  return html`<${AlarmDays} bars=${answer.data} answer=${answer} />`;
}

const dayWords = (day) => dayOf(Date.parse(`${day}T12:00:00Z`));

function DayBars({ bars: { days, byPriority } }) {
  const priorities = Object.keys(byPriority).toSorted();
  const sums = days.map((_, n) => sum(priorities.map((each) => byPriority[each][n])));
  const all = sum(sums);
  if (all === 0) return html`<p class="quiet">${t("No alarm was raised.")}</p>`;
  const maxSum = Math.max(...sums);
  const words = t("{alarms}; most on {day}: {count}", {
    alarms: countText(all, "alarm"),
    day: dayWords(days[sums.indexOf(maxSum)]),
    count: valueText(maxSum),
  });
  return html`<div class="bars" role="img" aria-label=${words}>
      ${days.map((day, n) => {
        const dayPriorities = priorities.filter((each) => byPriority[each][n] > 0);
        const counts = dayPriorities.map((each) => `${each} ${valueText(byPriority[each][n])}`);
        return html`<i key=${day} class="day" title=${[dayWords(day), ...counts].join(" · ")}>${dayPriorities.map(
          (each) => html`<i class=${`p${each}`} style=${{ height: `${(100 * byPriority[each][n]) / maxSum}%` }}></i>`,
        )}</i>`;
      })}
    </div>
    <p class="of ends"><span>${dayWords(days[0])}</span><span>${words}</span><span>${dayWords(days.at(-1))}</span></p>
    ${priorities.length > 1 && html`<p class="of key">${priorities.map((each) => html`<span><i class=${`p${each}`}></i> ${t("priority {name}", { name: each })}</span>`)}</p>`}`;
}

const SILENCE_LENGTHS = [
  [60, "1 h"],
  [240, "4 h"],
  [1440, "1 d"],
];
const LONGEST_REASON = 500;
const commandFor = ({ source, alarm, site }) =>
  `plenum silence add --source=${argument(source)} ${
    alarm === undefined ? `--site=${site}` : `--alarm=${argument(alarm)}`
  } --for 4h --reason "…"`;

export function BeginSilence({ what, name, done }) {
  const [isOpen, setOpen] = useState(false);
  const [reason, setReason] = useState("");
  const [failure, setFailure] = useState("");
  const label = t("silence {name}", { name });
  if (needsPassword()) return html`<${ByCommand} name=${t("silence …")} label=${label} command=${commandFor(what)} />`;
  if (!isOpen)
    return html`<button type="button" class="mute" aria-label=${label} onClick=${() => setOpen(true)}>${t("silence …")}</button>`;
  const close = () => {
    setOpen(false);
    setReason("");
    setFailure("");
  };
  const startSilence = async (minutes) => {
    const { message } = await post("/api/silences", { ...what, minutes, reason });
    if (message !== null) return setFailure(message);
    close();
    done();
  };
  return html`<span class="begin" role="group" aria-label=${label}>
    <input placeholder=${t("why?")} aria-label=${t("reason")} maxlength=${LONGEST_REASON} value=${reason} autocomplete="off"
      onInput=${(event) => setReason(event.target.value)} />
    ${SILENCE_LENGTHS.map(
      ([minutes, length]) => html`<button type="button" class="mute" disabled=${reason.trim() === ""}
        onClick=${() => startSilence(minutes)}>${t("for {length}", { length })}</button>`,
    )}
    <button type="button" class="mute" onClick=${close}>${t("cancel")}</button>
    ${failure !== "" && html`<b class="problem">${failure}</b>`}
  </span>`;
}

/** Asks for confirmation, because active alarms are notified when the silence ends. */
function EndSilence({ id, done }) {
  if (needsPassword()) return html`<${ByCommand} name=${t("end")} command=${`plenum silence end ${argument(id)}`} />`;
  const endSilence = async () => {
    const { message } = await post(`/api/silences/${encodeURIComponent(id)}/end`);
    done();
    return message;
  };
  return html`<${Twice} name=${t("end")} again=${t("click again to end")} done=${endSilence} />`;
}

export function Silences({ silences, done }) {
  const rows = silences.data;
  return html`<${Panel} kind="silences" title=${t("Silences")} note=${t("Plenum sends no tickets, messages or pages for these alarms")}>
    <${PasswordHint} command="plenum silence" />
    <${Stale} answer=${silences} />
    ${rows.length === 0 && silences.atMs !== null && html`<p class="quiet">${t("None.")}</p>`}
    <ul class="scroll">${rows.slice(0, MOST_SILENCES).map(
      ({ id, alarms, from, to, reason, madeBy, isActive }) => html`<li key=${id} class=${isActive ? "" : "coming"}>
        <b>${alarms}</b>
        <span class="of">${isActive ? "" : `${t("from {time}", { time: at(from, nowMs()) })} `}${t("until {time}", { time: at(to, nowMs()) })}, ${until(isActive ? to : from, nowMs())} · ${t("by {name}", { name: madeBy })}</span>
        <span class="of">${reason}</span>
        <${EndSilence} id=${id} done=${done} />
      </li>`,
    )}</ul>
    ${rows.length > MOST_SILENCES && html`<p class="quiet">${t("and {count} more", { count: valueText(rows.length - MOST_SILENCES) })}</p>`}
  <//>`;
}
