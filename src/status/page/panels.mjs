import { html, useEffect } from "/htm.mjs";
import { Priorities } from "/overview.mjs";
import { BeginSilence, Silenced } from "/silences.mjs";
import { ago, at, doubt, shown, until } from "/words.mjs";

/** The panels of the page: each takes a part of the report and draws it. Text only ever goes into text nodes. */

export function Source({ source, now }) {
  const { quota, token, health, history } = source;
  const held = quota !== null && quota.heldUntilMs !== null && quota.heldUntilMs > now;
  return html`<section class="panel source">
    <h2>${source.name} <span class="of">${source.origin}</span></h2>
    ${source.unavailable.map(
      ({ job, since, reason }) => html`<p class="problem">
        ${job ?? "The service"} is not to be had since ${at(since, now)}: ${reason}</p>`,
    )}
    ${held && html`<p class="warn">The service told everybody to wait ${Math.ceil((quota.heldUntilMs - now) / 1000)} s.</p>`}
    ${quota === null && html`<p class="quiet">What counts against the quota is not known.</p>`}
    ${quota?.buckets.map((allowance) => html`<${Allowance} allowance=${allowance} several=${quota.buckets.length > 1} now=${now} />`)}
    <dl class="facts">
      ${token && html`<div><dt>token</dt><dd>${token.name}${token.expiresAt === null ? "" : `, expires ${until(token.expiresAt, now)}`}</dd></div>`}
      ${health && html`<div><dt>health</dt><dd>the service's own health check says: ${health.status}${health.time === null ? "" : `, at ${at(health.time, now)}`} <span class="of">asked ${ago(health.askedAt, now)}</span></dd></div>`}
      ${history && html`<div><dt>history</dt><dd>${shown(history.complete)} of ${shown(history.series)} series complete${history.withoutLog > 0 ? `, ${history.withoutLog} without a log` : ""}${history.toldUntil === null ? "" : `, told until ${at(history.toldUntil, now)}`}</dd></div>`}
    </dl>
    <table class="jobs">
      <thead><tr><th>job</th><th class="n">last good poll</th></tr></thead>
      <tbody>${source.jobs.map((job) => html`<${Job} key=${job.name} job=${job} now=${now} />`)}</tbody>
    </table>
  </section>`;
}

/** An age that is larger than it should be says so, also while nobody answers. */
function Job({ job, now }) {
  const isLate = job.late || (job.dueBy !== null && Date.parse(job.dueBy) < now);
  return html`<tr class=${job.problem === null ? "" : "bad"}>
      <td>${job.name}</td>
      <td class=${`n ${isLate ? "warn" : ""}`}>${job.partly && "in part "}${ago(job.lastSuccess, now)}${isLate && `, was due ${until(job.dueBy, now)}`}</td>
    </tr>
    ${job.problem !== null && html`<tr class="below"><td colspan="2" class="problem">${job.problem}</td></tr>`}`;
}

/** Where read, write and history are counted apart, each bar says what it counts. */
function Allowance({ allowance, several, now }) {
  const waiting = Object.entries(allowance.waiting).filter(([, count]) => count > 0);
  const held = allowance.heldUntilMs !== null && allowance.heldUntilMs > now;
  return html`<div class="allowance">
    <div class="slots" role="meter" aria-valuemin="0" aria-valuemax=${allowance.perMinute} aria-valuenow=${allowance.used}
      aria-label=${several ? `${allowance.name} requests that count at present` : "requests that count at present"}>
      ${Array.from({ length: allowance.perMinute }, (_, i) => html`<i class=${i < allowance.used ? "used" : ""}></i>`)}
    </div>
    <p>${several && html`<b class="name">${allowance.name}</b> `}<b>${allowance.used}</b> of ${allowance.perMinute} requests a minute in use${
      allowance.pacedPerMinute < allowance.perMinute ? ` · polls get ${shown(allowance.pacedPerMinute)}` : ""
    }${
      waiting.length > 0 ? ` · waiting: ${waiting.map(([lane, count]) => `${count} ${lane}`).join(", ")}` : ""
    }${allowance.throttled > 0 ? ` · refused ${allowance.throttled} times` : ""}${
      held ? ` · told to wait ${Math.ceil((allowance.heldUntilMs - now) / 1000)} s` : ""
    }</p>
    ${
      allowance.foreign !== null &&
      html`<p class="warn">Another program seems to spend the same quota${
        allowance.foreign.perWindow === null ? "" : `, up to ${allowance.foreign.perWindow} requests a minute`
      }, since ${at(new Date(allowance.foreign.sinceMs).toISOString(), now)}.</p>`
    }
  </div>`;
}

/** Stands in a narrow column for a number that is not known. */
const unknown = () => html`<abbr title="not known">?</abbr>`;

export function Sinks({ sinks, now }) {
  return html`<section class="panel sinks">
    <h2>Sinks</h2>
    ${
      sinks.length === 0
        ? html`<p class="quiet">None is configured.</p>`
        : html`<table>
            <thead><tr><th>sink</th><th>state</th><th class="n">behind</th><th class="n">oldest</th><th class="n">refused</th><th class="n">lost</th></tr></thead>
            <tbody>${sinks.map((sink) => html`<${Sink} sink=${sink} now=${now} />`)}</tbody>
          </table>`
    }
    ${sinks.some((sink) => sink.depth === null) && html`<p class="quiet">? is not known: the sink was never started.</p>`}
    ${sinks.some((sink) => sink.depth !== null && !sink.exact) && html`<p class="quiet">≤ is the most that it can be: so many events are waiting that its filter is not asked about each.</p>`}
  </section>`;
}

function Sink({ sink, now }) {
  return html`<tr>
      <td>${sink.sink} <span class="of">${sink.connector ?? ""}</span></td>
      <td><span class=${`state ${sink.state}`}>${sink.state}</span></td>
      <td class="n">${sink.depth === null ? unknown() : `${sink.exact ? "" : "≤ "}${shown(sink.depth + sink.again)}`}</td>
      <td class="n">${sink.oldest === null ? "–" : ago(sink.oldest, now)}</td>
      <td class=${`n ${sink.deadLetters > 0 ? "warn" : ""}`}>${sink.deadLetters === null ? unknown() : shown(sink.deadLetters)}</td>
      <td class=${`n ${sink.dropped > 0 ? "warn" : ""}`}>${sink.dropped === null ? unknown() : shown(sink.dropped)}</td>
    </tr>
    ${sink.problem !== null && html`<tr class="below"><td colspan="6" class="problem">${sink.problem}</td></tr>`}`;
}

/** Sites of several sources may have the same number, so the choice names both. */
export function Sites({ sources, chosen, choose, now }) {
  return html`<section class="panel sites">
    <h2>Sites <span class="of">choose one to see only its alarms and values, or to silence it</span></h2>
    <table class="choice">
      <thead><tr><th>site</th><th class="n">tags</th><th class="n">gateways</th><th>active alarms</th></tr></thead>
      <tbody>${sources.flatMap((source) =>
        source.sites.map((site) => {
          const isChosen = chosen?.source === source.name && chosen.site === site.id;
          return html`<tr class=${isChosen ? "chosen" : ""}>
            <td><button type="button" aria-pressed=${isChosen}
              onClick=${() => choose(isChosen ? null : { source: source.name, site: site.id, name: site.displayName })}>
              ${site.displayName}</button></td>
            <td class="n">${site.tags === null ? unknown() : shown(site.tags)}</td>
            <td class=${`n ${site.gateways.online !== null && site.gateways.online < site.gateways.all ? "warn" : ""}`}>
              ${site.gateways.online ?? unknown()} / ${site.gateways.all ?? unknown()}</td>
            <td><${Priorities} counts=${site.alarms} /></td>
          </tr>`;
        }),
      )}</tbody>
    </table>
    ${sources.map((source) => html`<${Doubt} key=${source.name} reading=${source.readings.sites} what="sites" now=${now} />`)}
  </section>`;
}

/** Why a list may not be all there is, or not how it is now. */
function Doubt({ reading, what, now }) {
  const words = doubt(reading, what, now);
  return words === null ? null : html`<p class="warn">${`Not all ${what} are known: ${words}.`}</p>`;
}

/** A list that could not be asked for is from before. */
function Stale({ answer }) {
  if (answer.failed === null) return null;
  return html`<p class="problem">${answer.atMs === null ? "The worker did not answer this yet." : "The worker did not answer this; it is from before."} ${answer.failed}</p>`;
}

function Only({ chosen, choose }) {
  if (chosen === null) return null;
  return html`<button type="button" class="only" onClick=${() => choose(null)} aria-label="show all sites">
    ${chosen.name} ✕</button>`;
}

/** A description that begins with the name above it need not say it twice. */
function without(description, name) {
  return description.startsWith(`${name}: `) ? description.slice(name.length + 2) : description;
}

export function Alarms({ alarms, sources, chosen, choose, silenced, now }) {
  const shownSources = sources.filter((source) => chosen === null || source.name === chosen.source);
  const isWhole = shownSources.every((source) => source.readings.alarms.state === "whole");
  const rows = alarms.data.filter(
    ({ source, alarm }) => chosen === null || (source === chosen.source && alarm.site.id === chosen.site),
  );
  const isLookedFor = ({ source, alarm }) => location.hash === `#${alarmAddress(source, alarm.id)}`;
  const isRead = alarms.atMs !== null;
  useEffect(() => {
    // Whoever comes by a link of a message looks for one alarm; it is there only once the list is.
    if (isRead) document.getElementById(location.hash.slice(1))?.scrollIntoView({ block: "center" });
  }, [isRead]);
  return html`<section class="panel alarms">
    <h2>Active alarms <span class="of">${isWhole ? rows.length : ""}</span> <${Only} chosen=${chosen} choose=${choose} /></h2>
    ${
      chosen !== null &&
      html`<p class="of"><${BeginSilence} key=${`${chosen.source} ${chosen.site}`} name=${chosen.name}
        what=${{ source: chosen.source, site: chosen.site }} done=${silenced} /> all alarms of ${chosen.name}</p>`
    }
    <${Stale} answer=${alarms} />
    ${shownSources.map((source) => html`<${Doubt} key=${source.name} reading=${source.readings.alarms} what="active alarms" now=${now} />`)}
    ${rows.length === 0 && isWhole && html`<p class="quiet">The service lists none.</p>`}
    <ul class="scroll">${[...rows.slice(0, 100), ...rows.slice(100).filter(isLookedFor)].map(
      ({ source, alarm, state, tickets, silenced: silence }) => html`<li key=${`${source} ${alarm.id}`}
          id=${alarmAddress(source, alarm.id)} class=${isLookedFor({ source, alarm }) ? "looked-for" : ""}>
        <span class=${`priority p${alarm.trigger.priority}`}>${alarm.trigger.priority}</span>
        <div>
          <b>${alarm.trigger.displayName}</b>
          <span class="of">${alarm.site.displayName} · since ${ago(alarm.triggeredAt, now)}${
            alarm.acknowledged ? ` · acknowledged by ${alarm.acknowledgedBy ?? "somebody"}` : ""
          }${state === "active" ? "" : ` · ${state}`} ${
            silence === null &&
            html`<${BeginSilence} name=${alarm.trigger.displayName} what=${{ source, alarm: alarm.id }} done=${silenced} />`
          }</span>
          <span class="of">${without(alarm.description, alarm.trigger.displayName)}</span>
          ${tickets.length > 0 && html`<span class="of">told at ${tickets.map((ticket) => html`<${TicketPlace} key=${ticket.sink} ...${ticket} />`)}</span>`}
          ${silence !== null && html`<${Silenced} silenced=${silence} now=${now} />`}
        </div>
      </li>`,
    )}</ul>
    ${rows.length > 100 && html`<p class="quiet">and ${rows.length - 100} more</p>`}
  </section>`;
}

/** What follows `#` in a link of a message to an alarm; as src/receiver/held.ts writes it. */
function alarmAddress(source, id) {
  return `alarm/${encodeURIComponent(source)}/${encodeURIComponent(id)}`;
}

/** Where people find an alarm at a receiver. */
function TicketPlace({ sink, ticket, link, isOpen, isFolded }) {
  const name = `${sink}${ticket === null ? "" : ` ${ticket}`}${isFolded ? " (together with others)" : ""}${isOpen ? "" : " (closed)"}`;
  return link === null
    ? html`<span class="ticket">${name}</span> `
    : html`<a class="ticket" href=${link} target="_blank" rel="noreferrer noopener">${name}</a> `;
}

export function Values({ values, chosen, choose, search, setSearch, now }) {
  const { rows, total } = values.data;
  return html`<section class="panel values">
    <h2>Values <span class="of">${rows.length < total ? `${rows.length} of ${shown(total)}, ` : ""}read last first</span>
      <${Only} chosen=${chosen} choose=${choose} />
      <input type="search" placeholder="search name or id" value=${search} aria-label="search values"
        onInput=${(event) => setSearch(event.target.value)} /></h2>
    <${Stale} answer=${values} />
    <div class="scroll"><table>
      <thead><tr><th class="minor">tag</th><th>name</th><th class="n">value</th><th>unit</th><th class="n">read</th></tr></thead>
      <tbody>${rows.map((row) => html`<${Value} key=${`${row.source} ${row.tag.id}`} row=${row} now=${now} />`)}</tbody>
    </table></div>
    ${rows.length === 0 && values.atMs !== null && html`<p class="quiet">${search || chosen ? "Nothing fits." : "Nothing was read yet."}</p>`}
  </section>`;
}

function Value({ row, now }) {
  const { lastGood } = row;
  const isBad = row.quality === "bad";
  return html`<tr class=${isBad ? "unreadable" : ""}>
    <td class="minor of">${row.tag.id}</td>
    <td title=${row.tag.description ?? ""}>${row.tag.displayName}
      ${isBad && html`<span class="of"> unreadable${lastGood === null ? "" : `, was ${shown(lastGood.value)} ${ago(lastGood.time, now)}`}</span>`}</td>
    <td class="n value">${isBad ? "–" : shown(row.value)}</td>
    <td class="unit">${row.tag.unit ?? ""}</td>
    <td class="n">${ago(row.time, now)}</td>
  </tr>`;
}

export function Events({ events, now }) {
  return html`<section class="panel events">
    <h2>Events <span class="of">told last first, without values</span></h2>
    <${Stale} answer=${events} />
    <ol class="scroll">${events.data.map(
      ({ position, time, type, gist }) => html`<li key=${position}>
        <time datetime=${time}>${at(time, now)}</time>
        <span class=${`kind ${type}`}>${type}</span>
        <span>${gist}</span>
      </li>`,
    )}</ol>
    ${events.data.length === 0 && events.atMs !== null && html`<p class="quiet">None yet.</p>`}
  </section>`;
}
