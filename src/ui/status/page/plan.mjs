import { nowMs } from "/clock.mjs";
import { html } from "/htm.mjs";
import { t } from "/language.mjs";
import { at, counted, decimal, lasting, percent, shown, until } from "/words.mjs";

/** Use of the quota: the age of values, requests by purpose, and what to change when it is not enough. */

/** Purpose of each share of a minute's requests. */
const LANES = {
  write: "reserved for writes",
  live: "for values as promised",
  history: "to follow history",
  spare: "spare: the backfill, then fresher values",
  unused: "left unused, for others or out of caution",
};

export function Plan({ source, several }) {
  const { plan } = source;
  if (plan === null || (plan.classes.length === 0 && plan.history.length === 0)) return null;
  // Classes cost nothing before tags were listed.
  if (plan.tags === 0 && source.counts.tags === null) return null;
  return html`<section class="panel plan">
    <h2>${t("Freshness")} <span class="of">${several ? `${source.name}, ` : ""}${t("what the quota buys")}</span></h2>
    <${Verdict} plan=${plan} />
    ${plan.classes.length > 0 && html`<${Classes} plan=${plan} />`}
    <${Lanes} plan=${plan} />
    <dl class="facts">
      ${plan.classes.length > 0 && html`<div><dt>${t("full sweep")}</dt><dd>${t("reading every tag once takes {time}", { time: lasting(plan.fullSweepSeconds) })}</dd></div>`}
      <${Backfill} backfill=${plan.backfill} />
    </dl>
  </section>`;
}

function Verdict({ plan }) {
  const needs = t("the wishes need {share} of what there is.", { share: percent(plan.load) });
  if (plan.fits) {
    return html`<p><b class="good">${t("It fits:")}</b> ${needs} <${Measured} classes=${plan.classes} /></p>`;
  }
  const [cheapest] = plan.changes;
  return html`<p><b class="warn">${t("It does not fit:")}</b> ${needs} <${Measured} classes=${plan.classes} /></p>
    ${
      cheapest !== undefined &&
      html`<div class="change"><p><b>${t("The cheapest change.")}</b> <span lang="en">${cheapest.text}</span></p><code>${cheapest.yaml}</code></div>`
    }`;
}

/** Follows from the column below it, whether the plan fits or not. */
function Measured({ classes }) {
  const known = classes.filter(({ measuredSeconds }) => measuredSeconds !== null);
  const older = known.filter(({ olderThanWished }) => olderThanWished);
  if (known.length === 0) return t("How old values really become is not measured yet.");
  if (older.length === 0) return t("No value that was measured was older than wished.");
  return html`<b class="warn">${t("Measured, values became older than wished:")}</b> ${older
    .map((each) =>
      t("{name} {measured} instead of {wished}", {
        name: each.name,
        measured: lasting(each.measuredSeconds),
        wished: lasting(each.wishedSeconds),
      }),
    )
    .join(", ")}.`;
}

function Classes({ plan }) {
  return html`<table>
    <thead><tr><th>${t("class")}</th><th class="n">${t("tags")}</th><th class="n">${t("wished")}</th><th class="n">${t("promised")}</th><th class="n">${t("reached")}</th><th class="n minor">${t("requests a minute")}</th></tr></thead>
    <tbody>${plan.classes.map((each) => {
      return html`<tr>
        <td>${each.name}</td>
        <td class="n">${shown(each.tags)}</td>
        <td class="n">${lasting(each.wishedSeconds)}</td>
        <td class=${`n ${each.stretch > 1 ? "warn" : ""}`}>${lasting(each.promisedSeconds)}</td>
        <td class=${`n ${each.olderThanWished ? "warn" : ""}`}>${each.measuredSeconds === null ? "–" : lasting(each.measuredSeconds)}</td>
        <td class="n minor">${decimal(each.requestsPerMinute)}</td>
      </tr>`;
    })}</tbody>
  </table>`;
}

function Lanes({ plan }) {
  const { perMinute, polls, reserve } = plan.quota;
  const unused = Math.max(0, perMinute - polls - reserve);
  const lanes = [
    ...plan.lanes.map(({ lane, requestsPerMinute }) => [lane, requestsPerMinute]),
    ["unused", unused],
  ].filter(([, requests]) => requests >= 0.05);
  return html`<p class="of">${t("what {count} requests a minute are for", { count: perMinute })}</p>
    <div class="share" aria-hidden="true">
      ${lanes.map(([lane, requests]) => html`<i class=${lane} style=${{ flexGrow: String(requests) }}></i>`)}
    </div>
    <ul class="lanes">${lanes.map(
      ([lane, requests]) =>
        html`<li><i class=${lane}></i> <b>${decimal(requests)}</b> ${t(LANES[lane])} <span class="of">${percent(requests / perMinute)}</span></li>`,
    )}</ul>`;
}

function Backfill({ backfill }) {
  if (backfill === null) return null;
  const { requestsLeft, requestsPerMinute, doneAt } = backfill;
  const left = t("{requests} left", { requests: counted(requestsLeft, "request") });
  const words =
    doneAt === null
      ? t("paused, {left}", { left })
      : t("done {until}, at {time} ({left}, {pace} a minute)", {
          until: until(doneAt, nowMs()),
          time: at(doneAt, nowMs()),
          left,
          pace: decimal(requestsPerMinute),
        });
  return html`<div><dt>${t("backfill")}</dt><dd>${words}</dd></div>`;
}
