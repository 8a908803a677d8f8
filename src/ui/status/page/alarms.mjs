import { usePolled } from "/asking.mjs";
import { Age, nowMs } from "/clock.mjs";
import { html, useState } from "/htm.mjs";
import { t } from "/language.mjs";
import { alarmAddress, Doubt, Stale } from "/parts.mjs";
import { BeginSilence, Silenced } from "/silences.mjs";
import { useStillOrder } from "/still.mjs";
import { at, shown } from "/words.mjs";

/** Lists of alarms: those that are active, and those of a site or a tag. */

/** A description that begins with the name above it need not say it twice. */
function without(description, name) {
  return description.startsWith(`${name}: `) ? description.slice(name.length + 2) : description;
}

/** No alarms, before anything was answered. */
const NO_ALARMS = { priorities: {}, rows: [] };
/** Alarms shown at first, alarms added by each click, and the most that the worker returns. */
const FIRST = 100;
const MORE = 300;
const MOST = 1000;

/**
 * Active alarms of all sites, or of one ({ source, id }). `priority` is null for all. `more` shows more alarms; null when there are
 * none.
 */
export function useAlarms(site, priority, everyMs) {
  const [limit, setLimit] = useState(FIRST);
  const of = {
    ...(site === null ? {} : { source: site.source, site: site.id }),
    ...(priority === null ? {} : { priority }),
    ...(limit === FIRST ? {} : { limit: String(limit) }),
  };
  const alarms = usePolled(`/api/alarms?${new URLSearchParams(of)}`, NO_ALARMS, everyMs);
  return { ...alarms, more: limit === MOST ? null : () => setLimit(Math.min(MOST, limit + MORE)) };
}

/** Alarms of one priority alone, or of all. `priority` is null for all. */
function PriorityChoice({ priorities, priority, choose }) {
  const all = Object.keys(priorities).toSorted();
  if (all.length < 2 && priority === null) return null;
  return html`<div class="filters"><span class="chips" role="group" aria-label=${t("priority")}>
    <button type="button" class="chip" aria-pressed=${priority === null} onClick=${() => choose(null)}>${t("all")} <b>${shown(sum(priorities))}</b></button>
    ${all.map(
      (each) => html`<button type="button" class="chip" aria-pressed=${each === priority} onClick=${() => choose(each)}>
        ${each} <b>${shown(priorities[each])}</b></button>`,
    )}</span></div>`;
}

const sum = (priorities) => Object.values(priorities).reduce((before, each) => before + each, 0);

/** `site` ({ source, id }) narrows to one; null shows all. */
export function Alarms({ alarms, sources, site = null, priority, choose, silenced }) {
  const shownSources = sources.filter((source) => site === null || source.name === site.source);
  const isWhole = shownSources.every((source) => source.readings.alarms.state === "whole");
  const { priorities } = alarms.data;
  // Until the answer for another priority is there, what of the last one fits.
  const rows = alarms.data.rows.filter(({ alarm }) => priority === null || alarm.trigger.priority === priority);
  const all = sum(priorities);
  const fit = priority === null ? all : (priorities[priority] ?? 0);
  const order = useStillOrder(rows, keyOf, alarms.of);
  return html`<section class="panel alarms">
    <h2>${t("Active alarms")} <span class="of">${isWhole ? shown(all) : ""}</span>
      <span class="moved" role="status">${order.hasMoved && html`<button type="button" class="only" onClick=${order.renew}>${t("new order")}</button>`}</span></h2>
    <${PriorityChoice} priorities=${priorities} priority=${priority} choose=${choose} />
    <${Stale} answer=${alarms} />
    ${shownSources.map((source) => html`<${Doubt} key=${source.name} reading=${source.readings.alarms} what="active alarms" />`)}
    ${alarms.of !== null && all === 0 && isWhole && html`<p class="quiet">${t("The service lists none.")}</p>`}
    ${
      order.rows.length > 0 &&
      html`<ul class="scroll" tabindex="0" aria-label=${t("Active alarms")} ...${order.hold}>${order.rows.map(
        (row) => html`<${Row} key=${keyOf(row)} row=${row} silenced=${silenced} />`,
      )}</ul>`
    }
    ${
      fit > rows.length &&
      html`<p class="quiet">${t("and {count} more", { count: shown(fit - rows.length) })}
        ${alarms.more !== null && html`<button type="button" class="only" onClick=${alarms.more}>${t("show more")}</button>`}</p>`
    }
  </section>`;
}

const keyOf = ({ source, alarm }) => `${source} ${alarm.id}`;

function Row({ row, silenced }) {
  const { source, alarm, state, tickets, silenced: silence } = row;
  const { displayName, priority } = alarm.trigger;
  return html`<li>
    <span class=${`priority p${priority}`}>${priority}</span>
    <div>
      <b><a href=${alarmAddress(source, alarm.id)}>${displayName}</a></b>
      <span class="of">${alarm.site.displayName} · ${t("since")} <${Age} of=${alarm.triggeredAt} />${
        alarm.acknowledged ? ` · ${t("acknowledged by {name}", { name: alarm.acknowledgedBy ?? t("somebody") })}` : ""
      }${state === "active" ? "" : ` · ${t(state)}`} ${
        silence === null &&
        html`<${BeginSilence} name=${displayName} what=${{ source, alarm: alarm.id }} done=${silenced} />`
      }</span>
      <span class="of">${without(alarm.description, displayName)}</span>
      ${tickets.length > 0 && html`<span class="of">${t("sent to")} ${tickets.map((ticket) => html`<${TicketPlace} key=${ticket.sink} ...${ticket} />`)}</span>`}
      ${silence !== null && html`<${Silenced} silenced=${silence} />`}
    </div>
  </li>`;
}

/** Link to an alarm's message or ticket at a receiver. */
function TicketPlace({ sink, ticket, link, isOpen, isFolded }) {
  const name = `${sink}${ticket === null ? "" : ` ${ticket}`}${isFolded ? ` (${t("together with others")})` : ""}${isOpen ? "" : ` (${t("closed")})`}`;
  return link === null
    ? html`<span class="ticket">${name}</span> `
    : html`<a class="ticket" href=${link} target="_blank" rel="noreferrer noopener">${name}</a> `;
}

/** Alarms in short, of a tag or a site, whether they are over or not. */
export function AlarmBriefs({ alarms, none, hasSite = false }) {
  if (alarms.length === 0) return html`<p class="quiet">${none}</p>`;
  return html`<ul class="briefs">${alarms.map(
    (each) => html`<li key=${`${each.id} ${each.episode}`}>
      <span class=${`priority p${each.priority}`}>${each.priority}</span>
      <a href=${alarmAddress(each.source, each.id, each.episode)}>${each.name}</a>
      <span class="of">${hasSite ? `${each.site} · ` : ""}${t(each.state)} · ${at(each.raisedAt, nowMs())}${each.endedAt === null ? "" : ` – ${at(each.endedAt, nowMs())}`}</span>
    </li>`,
  )}</ul>`;
}
