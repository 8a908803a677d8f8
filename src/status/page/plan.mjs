import { html } from "/htm.mjs";
import { at, counted, lasting, percent, shown, until } from "/words.mjs";

/** What the quota buys: how old values become, what the requests are spent on, and what to change if it is not enough. */

/** What each share of a minute's requests is for. */
const LANES = {
  write: "kept for writes",
  live: "for values as promised",
  history: "to follow history",
  spare: "spare: the backfill, then fresher values",
  unused: "left unused, for others or out of caution",
};

export function Plan({ source, several, now }) {
  const { plan } = source;
  if (plan === null || (plan.classes.length === 0 && plan.history.length === 0)) return null;
  // Wishes for tags that nobody has listed cost nothing that could be shown.
  if (plan.tags === 0 && source.counts.tags === null) return null;
  return html`<section class="panel plan">
    <h2>Freshness <span class="of">${several ? `${source.name}, ` : ""}what the quota buys</span></h2>
    <${Verdict} plan=${plan} />
    ${plan.classes.length > 0 && html`<${Classes} plan=${plan} />`}
    <${Lanes} plan=${plan} />
    <dl class="facts">
      ${plan.classes.length > 0 && html`<div><dt>full sweep</dt><dd>reading every tag once takes ${lasting(plan.fullSweepSeconds)}</dd></div>`}
      <${Backfill} backfill=${plan.backfill} now=${now} />
    </dl>
  </section>`;
}

function Verdict({ plan }) {
  const needs = `the wishes need ${percent(plan.load)} of what there is.`;
  if (plan.fits) {
    return html`<p><b class="good">It fits:</b> ${needs} <${Measured} classes=${plan.classes} /></p>`;
  }
  const [cheapest] = plan.changes;
  return html`<p><b class="warn">It does not fit:</b> ${needs} <${Measured} classes=${plan.classes} /></p>
    ${
      cheapest !== undefined &&
      html`<div class="change"><p><b>The cheapest change.</b> ${cheapest.text}</p><code>${cheapest.yaml}</code></div>`
    }`;
}

/** Follows from the column below it, whether the plan fits or not. */
function Measured({ classes }) {
  const known = classes.filter(({ measuredSeconds }) => measuredSeconds !== null);
  const older = known.filter(({ olderThanWished }) => olderThanWished);
  if (known.length === 0) return "How old values really become is not measured yet.";
  if (older.length === 0) return "No value that was measured was older than wished.";
  return html`<b class="warn">Measured, values became older than wished:</b> ${older
    .map((each) => `${each.name} ${lasting(each.measuredSeconds)} instead of ${lasting(each.wishedSeconds)}`)
    .join(", ")}.`;
}

function Classes({ plan }) {
  return html`<table>
    <thead><tr><th>class</th><th class="n">tags</th><th class="n">wished</th><th class="n">promised</th><th class="n">reached</th><th class="n minor">requests a minute</th></tr></thead>
    <tbody>${plan.classes.map((each) => {
      return html`<tr>
        <td>${each.name}</td>
        <td class="n">${shown(each.tags)}</td>
        <td class="n">${lasting(each.wishedSeconds)}</td>
        <td class=${`n ${each.stretch > 1 ? "warn" : ""}`}>${lasting(each.promisedSeconds)}</td>
        <td class=${`n ${each.olderThanWished ? "warn" : ""}`}>${each.measuredSeconds === null ? "–" : lasting(each.measuredSeconds)}</td>
        <td class="n minor">${each.requestsPerMinute.toFixed(1)}</td>
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
  return html`<p class="of">what ${perMinute} requests a minute are for</p>
    <div class="share" aria-hidden="true">
      ${lanes.map(([lane, requests]) => html`<i class=${lane} style=${{ flexGrow: String(requests) }}></i>`)}
    </div>
    <ul class="lanes">${lanes.map(
      ([lane, requests]) =>
        html`<li><i class=${lane}></i> <b>${requests.toFixed(1)}</b> ${LANES[lane]} <span class="of">${percent(requests / perMinute)}</span></li>`,
    )}</ul>`;
}

function Backfill({ backfill, now }) {
  if (backfill === null) return null;
  const { requestsLeft, requestsPerMinute, doneAt } = backfill;
  const left = `${counted(requestsLeft, "request")} left`;
  return html`<div><dt>backfill</dt><dd>${
    doneAt === null
      ? `paused, ${left}`
      : `done ${until(doneAt, now)}, at ${at(doneAt, now)} (${left}, ${requestsPerMinute.toFixed(1)} a minute)`
  }</dd></div>`;
}
