import { html } from "/htm.mjs";

/** The panels of the page: each takes a part of the report and draws it. Text only ever goes into text nodes. */

export function ago(iso, now) {
  if (!iso) return "never";
  const seconds = Math.max(0, Math.round((now - Date.parse(iso)) / 1000));
  if (seconds < 90) return `${seconds} s ago`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min ago`;
  if (seconds < 129600) return `${Math.round(seconds / 3600)} h ago`;
  return `${Math.round(seconds / 86400)} days ago`;
}

const number = new Intl.NumberFormat("en", { maximumFractionDigits: 3 });

export function shown(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "number") return number.format(value);
  return String(value);
}

export function Notices({ notices }) {
  if (notices.length === 0) return null;
  return html`<section class="notices" aria-label="Attention">
    <ul>${notices.map((text) => html`<li>${text}</li>`)}</ul>
  </section>`;
}

export function Quota({ source, now }) {
  const { quota } = source;
  return html`<section class="panel">
    <h2>Quota <span class="of">${source.name} · ${source.origin}</span></h2>
    ${quota === null && html`<p class="quiet">No worker is running.</p>`}
    ${quota?.buckets.map((bucket) => {
      const slots = Array.from({ length: bucket.perMinute }, (_, i) => i < bucket.used);
      const waiting = Object.entries(bucket.waiting).filter(([, count]) => count > 0);
      return html`<div class="bucket">
        <div class="slots" role="meter" aria-valuemin="0" aria-valuemax=${bucket.perMinute} aria-valuenow=${bucket.used}
          aria-label="requests counted in the last minute">
          ${slots.map((used) => html`<i class=${used ? "used" : ""}></i>`)}
        </div>
        <p><b>${bucket.used}</b> of ${bucket.perMinute} requests in the last minute${
          bucket.throttled > 0 ? ` · refused ${bucket.throttled} times` : ""
        }${waiting.length > 0 ? ` · waiting: ${waiting.map(([lane, count]) => `${count} ${lane}`).join(", ")}` : ""}${
          bucket.heldUntilMs !== null && bucket.heldUntilMs > now
            ? ` · told to wait ${Math.ceil((bucket.heldUntilMs - now) / 1000)} s`
            : ""
        }</p>
      </div>`;
    })}
    <dl class="facts">
      <div><dt>sites</dt><dd>${source.counts.sites}</dd></div>
      <div><dt>tags</dt><dd>${number.format(source.counts.tags)}</dd></div>
      <div><dt>values held</dt><dd>${number.format(source.counts.values)}</dd></div>
      <div><dt>active alarms</dt><dd>${source.counts.alarms}</dd></div>
    </dl>
    <details>
      <summary>Jobs</summary>
      <table>
        <thead><tr><th>job</th><th>last success</th><th>problem</th></tr></thead>
        <tbody>${source.jobs.map(
          (job) => html`<tr class=${job.problem === null ? "" : "bad"}>
            <td>${job.name}</td><td>${ago(job.lastSuccess, now)}</td><td>${job.problem ?? ""}</td>
          </tr>`,
        )}</tbody>
      </table>
    </details>
  </section>`;
}

export function Sinks({ sinks, now }) {
  return html`<section class="panel">
    <h2>Sinks</h2>
    <table>
      <thead><tr><th>sink</th><th>state</th><th class="n">lag</th><th>oldest</th><th class="n">dead</th><th class="n">dropped</th></tr></thead>
      <tbody>${sinks.map(
        (sink) => html`<tr>
          <td>${sink.sink} <span class="of">${sink.connector ?? ""}</span></td>
          <td><span class=${`state ${sink.state}`}>${sink.state}</span>${
            sink.problem === null ? null : html`<div class="problem">${sink.problem}</div>`
          }</td>
          <td class="n">${number.format(sink.depth + sink.again)}</td>
          <td>${sink.oldest === null ? "–" : ago(sink.oldest, now)}</td>
          <td class="n">${sink.deadLetters}</td>
          <td class="n">${sink.dropped}</td>
        </tr>`,
      )}</tbody>
    </table>
    ${sinks.length === 0 && html`<p class="quiet">No sink is configured.</p>`}
  </section>`;
}

export function Sites({ sites, chosen, choose }) {
  return html`<section class="panel">
    <h2>Sites</h2>
    <table class="choice">
      <thead><tr><th>site</th><th class="n">tags</th><th class="n">gateways online</th><th>active alarms</th></tr></thead>
      <tbody>${sites.map(
        (site) => html`<tr class=${site.id === chosen ? "chosen" : ""}>
          <td><button type="button" aria-pressed=${site.id === chosen} onClick=${() => choose(site.id === chosen ? null : site.id)}>
            ${site.displayName}</button></td>
          <td class="n">${number.format(site.tags)}</td>
          <td class=${`n ${site.gateways.online < site.gateways.all ? "warn" : ""}`}>${site.gateways.online} / ${site.gateways.all}</td>
          <td>${Object.entries(site.alarms)
            .toSorted()
            .map(
              ([priority, count]) => html`<span class=${`priority p${priority}`}>${priority} ${count}</span>`,
            )}</td>
        </tr>`,
      )}</tbody>
    </table>
  </section>`;
}

export function Alarms({ alarms, chosen, now }) {
  const rows = alarms.filter(({ alarm }) => chosen === null || alarm.site.id === chosen);
  return html`<section class="panel">
    <h2>Active alarms <span class="of">${rows.length}</span></h2>
    ${rows.length === 0 && html`<p class="quiet">The service lists none.</p>`}
    <ul class="alarms">${rows.slice(0, 100).map(
      ({ alarm, state }) => html`<li>
        <span class=${`priority p${alarm.trigger.priority}`}>${alarm.trigger.priority}</span>
        <div>
          <b>${alarm.trigger.displayName}</b>
          <span class="of">${alarm.site.displayName} · since ${ago(alarm.triggeredAt, now)}${
            alarm.acknowledged ? ` · acknowledged by ${alarm.acknowledgedBy ?? "somebody"}` : ""
          }${state === "active" ? "" : ` · ${state}`}</span>
          <span class="of">${alarm.description}</span>
        </div>
      </li>`,
    )}</ul>
  </section>`;
}

export function Values({ values, search, setSearch, now }) {
  return html`<section class="panel wide">
    <h2>Values <span class="of">latest first</span>
      <input type="search" placeholder="name or id" value=${search} aria-label="search values"
        onInput=${(event) => setSearch(event.target.value)} /></h2>
    <div class="scroll"><table>
      <thead><tr><th>tag</th><th>name</th><th class="n">value</th><th>unit</th><th>quality</th><th>read</th></tr></thead>
      <tbody>${values.map(
        (row) => html`<tr class=${row.quality === "bad" ? "bad" : ""}>
          <td>${row.tag.id}</td>
          <td title=${row.tag.description ?? ""}>${row.tag.displayName}</td>
          <td class="n value">${shown(row.value)}</td>
          <td>${row.tag.unit ?? ""}</td>
          <td>${row.quality}</td>
          <td>${ago(row.time, now)}</td>
        </tr>`,
      )}</tbody>
    </table></div>
    ${values.length === 0 && html`<p class="quiet">Nothing was read yet, or nothing fits.</p>`}
  </section>`;
}

function gist({ type, data }) {
  if (data.alarm) return `${data.alarm.trigger.displayName} · ${data.alarm.site.displayName}`;
  if (type === "tag-history")
    return `${data.tag.displayName} · ${data.points.length} points of ${data.resolution}`;
  if (type === "tag-value") return `${data.tag.displayName} = ${shown(data.value)} ${data.tag.unit ?? ""}`;
  if (type === "command-result") return `${data.tagId ?? ""} ${data.outcome}: ${data.message}`;
  const thing = data.site ?? data.gateway ?? data.host ?? data.system ?? data.tag;
  return thing?.displayName ?? data.reason ?? "";
}

export function Events({ events }) {
  return html`<section class="panel">
    <h2>Events <span class="of">latest first, without values</span></h2>
    <ol class="events">${events.map(
      ({ position, event }) => html`<li key=${position}>
        <time datetime=${event.time}>${event.time.slice(11, 19)}</time>
        <span class=${`kind ${event.type}`}>${event.type}</span>
        <span>${gist(event)}</span>
      </li>`,
    )}</ol>
  </section>`;
}

export function Commands({ commands }) {
  if (commands === null) return null;
  const state = !commands.enabled
    ? "Writing to the building is switched off."
    : commands.stopped
      ? "Writing is stopped by the kill switch."
      : commands.rehearsal
        ? "Rehearsal: commands are checked and answered, nothing is written."
        : `Armed: ${commands.writable} tags may be written.`;
  return html`<p class=${`commands ${commands.enabled && !commands.stopped && !commands.rehearsal ? "armed" : ""}`}>
    ${state}${commands.waiting > 0 ? ` ${commands.waiting} commands are waiting for the quota.` : ""}
  </p>`;
}
