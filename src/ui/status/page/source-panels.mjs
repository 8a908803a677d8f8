import { Panel, Table } from "/components.mjs";
import { at, countText, decimalText, intervalText, percentText, untilText, valueText } from "/formats.mjs";
import { html } from "/htm.mjs";
import { viewAddress } from "/view-url.mjs";
import { Age, At, CurrentTimeText, nowMs, TimeUntil } from "/worker-clock.mjs";

export function SourcePanel({ source, isLinked = true }) {
  const { quota, token, health, history } = source;
  const sourceLink = html`<a href=${viewAddress("source", [source.name])}>${source.name}</a>`;
  const jobRows = source.jobs.map((job) => html`<${JobRows} key=${job.name} job=${job} />`);
  return html`<${Panel} kind="source" title=${isLinked ? sourceLink : "Requests and jobs"} note=${source.origin}>
    ${source.unavailable.map(
      ({ job, since, reason }) => html`<p class="problem">
        ${job ?? "The service"} unavailable since ${at(since, nowMs())}: ${reason}</p>`,
    )}
    ${quota !== null && quota.heldUntilMs !== null && html`<${PauseCountdown} untilMs=${quota.heldUntilMs} text=${(seconds) => `The service demands a pause of ${seconds} s.`} />`}
    ${quota === null && html`<p class="quiet">The use of the quota is unknown.</p>`}
    ${quota?.buckets.map((bucket) => html`<${QuotaBucket} key=${bucket.name} bucket=${bucket} />`)}
    <dl class="facts">
      ${token && html`<div><dt>token</dt><dd>${token.name}${token.expiresAt !== null && html`, expires <${TimeUntil} time=${token.expiresAt} />`}</dd></div>`}
      ${health && html`<div><dt>health</dt><dd>health check of the service: ${health.status}${health.time !== null && html`, at <${At} time=${health.time} />`} <span class="of">asked <${Age} of=${health.askedAt} /></span></dd></div>`}
      ${history && html`<div><dt>history</dt><dd>${historyText(history)}</dd></div>`}
    </dl>
    <${Table} kind="jobs" rows=${jobRows} head=${[["job"], ["last successful poll", "n"]]} none="" />
  <//>`;
}

function historyText({ complete, series, withoutLog, toldUntil }) {
  return [
    `${valueText(complete)} of ${valueText(series)} series complete`,
    ...(withoutLog > 0 ? [`${valueText(withoutLog)} without a log`] : []),
    ...(toldUntil === null ? [] : [`emitted until ${at(toldUntil, nowMs())}`]),
  ].join(", ");
}

function PauseCountdown({ untilMs, text }) {
  const countdownText = (now) => (untilMs > now ? text(Math.ceil((untilMs - now) / 1000)) : "");
  return html`<p class="warn"><${CurrentTimeText} say=${countdownText} /></p>`;
}

/** Table rows of a job. Computes lateness here, because a job can become late while the worker does not respond. */
function JobRows({ job }) {
  const isJobLate = job.late || (job.dueBy !== null && Date.parse(job.dueBy) < nowMs());
  return html`<tr class=${job.problem === null ? "" : "bad"}>
      <td>${job.name}</td>
      <td class=${`n ${isJobLate ? "warn" : ""}`}>${job.partly && "in part "}<${Age} of=${job.lastSuccess} />${isJobLate && html`, was due <${TimeUntil} time=${job.dueBy} />`}</td>
    </tr>
    ${job.problem !== null && html`<tr class="below"><td colspan="2" class="problem">${job.problem}</td></tr>`}`;
}

function QuotaBucket({ bucket }) {
  const { name, perMinute, used, pacedPerMinute, throttled, heldUntilMs, foreign } = bucket;
  const waitingLanes = Object.entries(bucket.waiting).filter(([, count]) => count > 0);
  const waitingLanesText = waitingLanes.map(([lane, count]) => `${count} ${lane}`).join(", ");
  const bucketTexts = [
    `${used} of ${perMinute} requests a minute in use`,
    ...(pacedPerMinute < perMinute ? [`polls get ${valueText(pacedPerMinute)}`] : []),
    ...(waitingLanesText === "" ? [] : [`waiting: ${waitingLanesText}`]),
    ...(throttled > 0 ? [`rejected ${valueText(throttled)} times`] : []),
  ];
  return html`<div class="allowance">
    <div class="slots" role="meter" aria-valuemin="0" aria-valuemax=${perMinute} aria-valuenow=${used}
      aria-label=${`${name} requests in use`}>
      ${Array.from({ length: perMinute }, (_, n) => html`<i class=${n < used ? "used" : ""}></i>`)}
    </div>
    <p><b class="name">${name}</b> ${bucketTexts.join(" · ")}</p>
    ${heldUntilMs !== null && html`<${PauseCountdown} untilMs=${heldUntilMs} text=${(seconds) => `paused for ${seconds} s`} />`}
    ${foreign !== null && html`<p class="warn">${otherProgramUseText(foreign)}</p>`}
  </div>`;
}

function otherProgramUseText({ perWindow, sinceMs }) {
  const since = at(new Date(sinceMs).toISOString(), nowMs());
  return perWindow === null
    ? `Another program seems to spend the same quota, since ${since}.`
    : `Another program seems to spend the same quota, up to ${valueText(perWindow)} requests a minute, since ${since}.`;
}

const QUOTA_LANE_PURPOSES = {
  write: "reserved for writes",
  live: "live values",
  history: "history",
  spare: "spare: the backfill, then fresher values",
  unused: "unused: reserve for other programs",
};

/** Shows how the quota is used and, if the quota does not suffice, the cheapest change. */
export function QuotaPlanPanel({ source, several }) {
  const { plan } = source;
  if (plan === null || (plan.classes.length === 0 && plan.history.length === 0)) return null;
  // Before the tags are listed, the plan contains no requests.
  if (plan.tags === 0 && source.counts.tags === null) return null;
  return html`<${Panel} kind="plan" title="Freshness" note=${`${several ? `${source.name}, ` : ""}age of values that the quota allows`}>
    <${PlanVerdict} plan=${plan} />
    ${plan.classes.length > 0 && html`<${ReadClassTable} classes=${plan.classes} />`}
    <${QuotaLanes} plan=${plan} />
    <dl class="facts">
      ${plan.classes.length > 0 && html`<div><dt>full sweep</dt><dd>reading every tag once takes ${intervalText(plan.fullSweepSeconds)}</dd></div>`}
      ${plan.backfill !== null && html`<div><dt>backfill</dt><dd>${backfillText(plan.backfill)}</dd></div>`}
    </dl>
  <//>`;
}

function PlanVerdict({ plan }) {
  const [cheapestChange] = plan.fits ? [] : plan.changes;
  const verdictText = plan.fits ? html`<b class="good">It fits:</b>` : html`<b class="warn">It does not fit:</b>`;
  return html`<p>${verdictText} the target intervals need ${percentText(plan.load)} of the available requests. <${MeasuredValueAges} classes=${plan.classes} /></p>
    ${
      cheapestChange !== undefined &&
      html`<div class="change"><p><b>The cheapest change.</b> ${cheapestChange.text}</p><code>${cheapestChange.yaml}</code></div>`
    }`;
}

function MeasuredValueAges({ classes }) {
  const measuredClasses = classes.filter(({ measuredSeconds }) => measuredSeconds !== null);
  const classesOlderThanTarget = measuredClasses.filter(({ olderThanTarget }) => olderThanTarget);
  if (measuredClasses.length === 0) return "The actual age of values is not measured yet.";
  if (classesOlderThanTarget.length === 0) return "No measured value was older than its target.";
  return html`<b class="warn">Measured values were older than their target:</b> ${classesOlderThanTarget
    .map(
      ({ name, measuredSeconds, targetSeconds }) =>
        `${name} ${intervalText(measuredSeconds)} instead of ${intervalText(targetSeconds)}`,
    )
    .join(", ")}.`;
}

function ReadClassTable({ classes }) {
  const tableHead = [
    ["class"],
    ...["tags", "interval", "planned", "reached"].map((name) => [name, "n"]),
    ["requests a minute", "n minor"],
  ];
  const rows = classes.map(
    (readClass) => html`<tr>
      <td>${readClass.name}</td>
      <td class="n">${valueText(readClass.tags)}</td>
      <td class="n">${intervalText(readClass.targetSeconds)}</td>
      <td class=${`n ${readClass.stretch > 1 ? "warn" : ""}`}>${intervalText(readClass.promisedSeconds)}</td>
      <td class=${`n ${readClass.olderThanTarget ? "warn" : ""}`}>${readClass.measuredSeconds === null ? "–" : intervalText(readClass.measuredSeconds)}</td>
      <td class="n minor">${decimalText(readClass.requestsPerMinute)}</td>
    </tr>`,
  );
  return html`<${Table} rows=${rows} head=${tableHead} none="" />`;
}

function QuotaLanes({ plan }) {
  const { perMinute, polls, reserve } = plan.quota;
  const unusedLane = { lane: "unused", requestsPerMinute: Math.max(0, perMinute - polls - reserve) };
  const visibleLanes = [...plan.lanes, unusedLane].filter(({ requestsPerMinute }) => requestsPerMinute >= 0.05);
  return html`<p class="of">what ${perMinute} requests a minute are for</p>
    <div class="share" aria-hidden="true">
      ${visibleLanes.map(({ lane, requestsPerMinute }) => html`<i class=${lane} style=${{ flexGrow: String(requestsPerMinute) }}></i>`)}
    </div>
    <ul class="lanes">${visibleLanes.map(
      ({ lane, requestsPerMinute }) =>
        html`<li><i class=${lane}></i> <b>${decimalText(requestsPerMinute)}</b> ${QUOTA_LANE_PURPOSES[lane]} <span class="of">${percentText(requestsPerMinute / perMinute)}</span></li>`,
    )}</ul>`;
}

function backfillText({ requestsLeft, requestsPerMinute, doneAt }) {
  const requestsLeftText = `${countText(requestsLeft, "request")} left`;
  if (doneAt === null) return `paused, ${requestsLeftText}`;
  return `done ${untilText(doneAt, nowMs())}, at ${at(doneAt, nowMs())} (${requestsLeftText}, ${decimalText(requestsPerMinute)} a minute)`;
}
