import { usePolled } from "/asking.mjs";
import { Chart } from "/chart.mjs";
import { At, nowMs } from "/clock.mjs";
import { html, useMemo } from "/htm.mjs";
import { t } from "/language.mjs";
import { Source } from "/panels.mjs";
import { CopyAddress, Head, Missing, Stale } from "/parts.mjs";
import { Plan } from "/plan.mjs";
import { at, shown } from "/words.mjs";

/** One source: what its quota was spent on, and what the service refused. */

const EVERY_MS = 10_000;
/** From the bottom up, with the colours of the plan. */
const LANES = [
  ["write", "warn"],
  ["on-demand", "bad"],
  ["live", "accent"],
  ["history", "history"],
  ["spare", "spare"],
];

export function View({ parts: [name = ""], report }) {
  const answer = usePolled(`/api/source?${new URLSearchParams({ name })}`, null, EVERY_MS);
  const source = report.sources.find((each) => each.name === name);
  const told = answer.data;
  if (told === null || answer.missing || source === undefined)
    return html`<${Missing} answer=${source === undefined ? { ...answer, missing: true } : answer} what="source" />`;
  return html`
    <${Head} name=${name} above=${[[t("Source"), null]]}><p class="of">${source.origin} <${CopyAddress} /></p></${Head}>
    <${Stale} answer=${answer} />
    <${Quota} told=${told} />
    <div class="halves">
      <div><${Source} source=${source} isLinked=${false} /></div>
      <div><${Plan} source=${source} several=${false} /><${Refused} refused=${told.refused} /></div>
    </div>`;
}

/** Stacks the lanes; the highest is drawn first. An unknown minute is a gap in all lanes. */
function stacked({ t: times, lanes }) {
  const columns = [];
  let below = times.map(() => 0);
  for (const [lane] of LANES) {
    const requests = lanes[lane] ?? [];
    below = below.map((sum, n) => (sum === null || requests[n] === null ? null : sum + (requests[n] ?? 0)));
    columns.unshift(below);
  }
  return [times, ...columns];
}

function Quota({ told }) {
  const data = useMemo(() => stacked(told), [told]);
  const { t: times, lanes, allowed } = told;
  const series = LANES.toReversed().map(([lane, colour]) => ({
    label: lane,
    colour,
    fill: colour,
    width: 0.5,
    isStepped: true,
  }));
  // Each rejection is a vertical line.
  const marks = told.refused.map((each) => ({ t: Date.parse(each.at) / 1000, colour: "bad" }));
  const say = (n) => {
    if (n === null)
      return html`<span class="of">${t("requests a minute of the last 24 hours; {allowed} are allowed", { allowed: shown(allowed) })}</span>`;
    const parts = LANES.filter(([lane]) => lanes[lane]?.[n] > 0).map(([lane]) => `${t(lane)} ${shown(lanes[lane][n])}`);
    return html`<span>${at(new Date(times[n] * 1000).toISOString(), nowMs())}</span> <b>${t("{used} of {allowed}", { used: shown(data[1][n]), allowed: shown(allowed) })}</b> <span class="of">${parts.join(", ")}</span>`;
  };
  return html`<section class="panel"><h3>${t("Quota over time")} <span class="key">${LANES.map(([lane]) => html`<span><i class=${lane}></i> ${t(lane)}</span>`)}</span></h3>
    ${
      times.length === 0
        ? html`<p class="canvas empty">${t("Nothing is known of this time.")}</p>`
        : html`<${Chart} name=${t("{name}, curve; arrow keys read it point by point", { name: t("Quota over time") })} data=${data} from=${times[0]} to=${times.at(-1)} series=${series} levels=${[allowed]} marks=${marks} floor=${0} say=${say} />`
    }</section>`;
}

function Refused({ refused }) {
  return html`<section class="panel"><h2>${t("Refused or failed")} <span class="of">${t("by the service, newest first")}</span></h2>
    ${refused.length === 0 && html`<p class="quiet">${t("Nothing was refused.")}</p>`}
    ${
      refused.length > 0 &&
      html`<div class="scroll" tabindex="0" role="region" aria-label=${t("Refused or failed")}><table><thead><tr><th>${t("time")}</th><th>${t("what")}</th><th>${t("why")}</th></tr></thead>
    <tbody>${refused.map((each, n) => html`<tr key=${`${each.at} ${n}`}><td class="when"><${At} time=${each.at} /></td><td>${each.what}</td><td lang="en">${each.words}</td></tr>`)}</tbody></table></div>`
    }</section>`;
}
