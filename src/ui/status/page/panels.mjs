import { to } from "/address.mjs";
import { Age, At, Now, nowMs, Until } from "/clock.mjs";
import { html } from "/htm.mjs";
import { t } from "/language.mjs";
import { Doubt, Priorities, Stale, siteAddress, unknown } from "/parts.mjs";
import { at, shown } from "/words.mjs";

/** The panels of the overview: each takes a part of the report and draws it. */

export function Source({ source, isLinked = true }) {
  const { quota, token, health, history } = source;
  return html`<section class="panel source">
    <h2>${isLinked ? html`<a href=${to("source", [source.name])}>${source.name}</a>` : t("Requests and jobs")} <span class="of">${source.origin}</span></h2>
    ${source.unavailable.map(
      ({ job, since, reason }) => html`<p class="problem">
        ${t("{what} unavailable since {time}:", { what: job === null ? t("The service") : t(job), time: at(since, nowMs()) })} ${reason}</p>`,
    )}
    ${quota !== null && quota.heldUntilMs !== null && html`<${Held} untilMs=${quota.heldUntilMs} words="The service demands a pause of {seconds} s." />`}
    ${quota === null && html`<p class="quiet">${t("What counts against the quota is not known.")}</p>`}
    ${quota?.buckets.map((allowance) => html`<${Allowance} key=${allowance.name} allowance=${allowance} />`)}
    <dl class="facts">
      ${token && html`<div><dt>${t("token")}</dt><dd>${token.name}${token.expiresAt !== null && html`, ${t("expires")} <${Until} time=${token.expiresAt} />`}</dd></div>`}
      ${health && html`<div><dt>${t("health")}</dt><dd>${t("health check of the service: {status}", { status: health.status })}${health.time !== null && html`, ${t("at")} <${At} time=${health.time} />`} <span class="of">${t("asked")} <${Age} of=${health.askedAt} /></span></dd></div>`}
      ${history && html`<div><dt>${t("history")}</dt><dd>${t("{complete} of {series} series complete", { complete: shown(history.complete), series: shown(history.series) })}${history.withoutLog > 0 ? `, ${t("{count} without a log", { count: shown(history.withoutLog) })}` : ""}${history.toldUntil === null ? "" : `, ${t("emitted until {time}", { time: at(history.toldUntil, nowMs()) })}`}</dd></div>`}
    </dl>
    <table class="jobs">
      <thead><tr><th>${t("job")}</th><th class="n">${t("last good poll")}</th></tr></thead>
      <tbody>${source.jobs.map((job) => html`<${Job} key=${job.name} job=${job} />`)}</tbody>
    </table>
  </section>`;
}

/** A pause that was ordered, for as long as it lasts. */
function Held({ untilMs, words }) {
  const say = (now) => (untilMs > now ? t(words, { seconds: Math.ceil((untilMs - now) / 1000) }) : "");
  return html`<p class="warn"><${Now} say=${say} /></p>`;
}

/** Job with its age; a large age is marked, also while no response arrives. */
function Job({ job }) {
  const isLate = job.late || (job.dueBy !== null && Date.parse(job.dueBy) < nowMs());
  return html`<tr class=${job.problem === null ? "" : "bad"}>
      <td>${t(job.name)}</td>
      <td class=${`n ${isLate ? "warn" : ""}`}>${job.partly && `${t("in part")} `}<${Age} of=${job.lastSuccess} />${isLate && html`, ${t("was due")} <${Until} time=${job.dueBy} />`}</td>
    </tr>
    ${job.problem !== null && html`<tr class="below"><td colspan="2" class="problem" lang="en">${job.problem}</td></tr>`}`;
}

/** Each bar says what it counts: read, write and history may be counted apart. */
export function Allowance({ allowance }) {
  const waiting = Object.entries(allowance.waiting).filter(([, count]) => count > 0);
  return html`<div class="allowance">
    <div class="slots" role="meter" aria-valuemin="0" aria-valuemax=${allowance.perMinute} aria-valuenow=${allowance.used}
      aria-label=${t("{name} requests that count at present", { name: t(allowance.name) })}>
      ${Array.from({ length: allowance.perMinute }, (_, i) => html`<i class=${i < allowance.used ? "used" : ""}></i>`)}
    </div>
    <p><b class="name">${t(allowance.name)}</b> ${t("{used} of {allowed} requests a minute in use", { used: allowance.used, allowed: allowance.perMinute })}${
      allowance.pacedPerMinute < allowance.perMinute
        ? ` · ${t("polls get {count}", { count: shown(allowance.pacedPerMinute) })}`
        : ""
    }${
      waiting.length > 0
        ? ` · ${t("waiting: {lanes}", { lanes: waiting.map(([lane, count]) => `${count} ${t(lane)}`).join(", ") })}`
        : ""
    }${allowance.throttled > 0 ? ` · ${t("refused {count} times", { count: shown(allowance.throttled) })}` : ""}</p>
    ${allowance.heldUntilMs !== null && html`<${Held} untilMs=${allowance.heldUntilMs} words="paused for {seconds} s" />`}
    ${allowance.foreign !== null && html`<p class="warn">${foreignWords(allowance.foreign)}</p>`}
  </div>`;
}

function foreignWords({ perWindow, sinceMs }) {
  const since = at(new Date(sinceMs).toISOString(), nowMs());
  return perWindow === null
    ? t("Another program seems to spend the same quota, since {since}.", { since })
    : t("Another program seems to spend the same quota, up to {count} requests a minute, since {since}.", {
        count: shown(perWindow),
        since,
      });
}

export function Sinks({ sinks }) {
  return html`<section class="panel sinks">
    <h2>${t("Sinks")} <span class="of">${t("where data and alarms are sent")}</span></h2>
    ${
      sinks.length === 0
        ? html`<p class="quiet">${t("None is configured.")}</p>`
        : html`<table>
            <thead><tr><th>${t("sink")}</th><th>${t("state")}</th><th class="n">${t("behind")}</th><th class="n">${t("oldest")}</th><th class="n">${t("refused")}</th><th class="n">${t("lost")}</th></tr></thead>
            <tbody>${sinks.map((sink) => html`<${Sink} key=${sink.sink} sink=${sink} />`)}</tbody>
          </table>`
    }
    ${sinks.some((sink) => sink.depth === null) && html`<p class="quiet">${t("? is not known: the sink was never started.")}</p>`}
    ${sinks.some((sink) => sink.depth !== null && !sink.exact) && html`<p class="quiet">${t("≤ marks an upper bound: too many events are waiting to apply the filter to each.")}</p>`}
  </section>`;
}

function Sink({ sink }) {
  return html`<tr>
      <td><a href=${to("sink", [sink.sink])}>${sink.sink}</a> <span class="of">${sink.connector ?? ""}</span></td>
      <td><span class=${`state ${sink.state}`}>${t(sink.state)}</span></td>
      <td class="n">${sink.depth === null ? unknown() : `${sink.exact ? "" : "≤ "}${shown(sink.depth + sink.again)}`}</td>
      <td class="n">${sink.oldest === null ? "–" : html`<${Age} of=${sink.oldest} />`}</td>
      <td class=${`n ${sink.deadLetters > 0 ? "warn" : ""}`}>${sink.deadLetters === null ? unknown() : shown(sink.deadLetters)}</td>
      <td class=${`n ${sink.dropped > 0 ? "warn" : ""}`}>${sink.dropped === null ? unknown() : shown(sink.dropped)}</td>
    </tr>
    ${sink.problem !== null && html`<tr class="below"><td colspan="6" class="problem" lang="en">${sink.problem}</td></tr>`}`;
}

/** Sites of several sources may have the same number, so the address names both. */
export function Sites({ sources }) {
  return html`<section class="panel sites">
    <h2>${t("Sites")} <span class="of">${t("open one to see all of it, or to silence it")}</span></h2>
    <table class="choice">
      <thead><tr><th>${t("site")}</th><th class="n">${t("tags")}</th><th class="n">${t("gateways")}</th><th>${t("active alarms")}</th></tr></thead>
      <tbody>${sources.flatMap((source) =>
        source.sites.map(
          (site) => html`<tr key=${`${source.name} ${site.id}`}>
            <td><a href=${siteAddress(source.name, site.id)}>${site.displayName}</a></td>
            <td class="n">${site.tags === null ? unknown() : shown(site.tags)}</td>
            <td class=${`n ${site.gateways.online !== null && site.gateways.online < site.gateways.all ? "warn" : ""}`}>
              ${site.gateways.online ?? unknown()} / ${site.gateways.all ?? unknown()}</td>
            <td><${Priorities} counts=${site.alarms} /></td>
          </tr>`,
        ),
      )}</tbody>
    </table>
    ${sources.map((source) => html`<${Doubt} key=${source.name} reading=${source.readings.sites} what="sites" />`)}
  </section>`;
}

export function Events({ events }) {
  return html`<section class="panel events">
    <h2>${t("Events")} <span class="of">${t("newest first, without values")}</span></h2>
    <${Stale} answer=${events} />
    <ol class="scroll" tabindex="0" aria-label=${t("Events")}>${events.data.map(
      ({ position, time, type, gist }) => html`<li key=${position}>
        <${At} time=${time} />
        <span class=${`kind ${type}`}>${type}</span>
        <span>${gist}</span>
      </li>`,
    )}</ol>
    ${events.data.length === 0 && events.atMs !== null && html`<p class="quiet">${t("None yet.")}</p>`}
  </section>`;
}
