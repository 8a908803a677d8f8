import { usePolled } from "/asking.mjs";
import { Chart } from "/chart.mjs";
import { nowMs } from "/clock.mjs";
import { html, useMemo } from "/htm.mjs";
import { t } from "/language.mjs";
import { Stale } from "/parts.mjs";
import { at, counted, lasting, shown } from "/words.mjs";

/** How the values of a tag went, from what was read and what the log of the service has. */

export const SPANS = ["6h", "24h", "7d", "30d"];
const SPAN_WORDS = { "6h": "6 hours", "24h": "24 hours", "7d": "7 days", "30d": "30 days" };
const LIVE_MS = 10_000;
const LONG_MS = 60_000;
/** History that was asked for comes within a turn of its lane. */
const ASKED_MS = 3000;

const ORIGINS = {
  read: "as it was read",
  logged: "from the log",
  both: "as it was read, and from the log",
  none: "nothing is known of this time",
};

const secondsOf = (iso) => Math.round(Date.parse(iso) / 1000);

export function spanIn(query) {
  const span = query.get("span");
  return SPANS.includes(span) ? span : "24h";
}

export function Spans({ span, choose }) {
  return html`<span class="chips" role="group" aria-label=${t("time shown")}>${SPANS.map(
    (each) =>
      html`<button type="button" class="chip" aria-pressed=${each === span} onClick=${() => choose(each)}>${t(SPAN_WORDS[each])}</button>`,
  )}</span>`;
}

/** `isAsked`: history is wanted from the log; `marks`: times that mean something, such as when an alarm was raised. */
export function TagPlot({ source, id, span, choose, isAsked, ask, marks = [], isBoolean = false, name }) {
  const asked = new URLSearchParams({ source, tag: id, span });
  if (isAsked) asked.set("fetch", "1");
  const every = isAsked ? ASKED_MS : span === "6h" || span === "24h" ? LIVE_MS : LONG_MS;
  const answer = usePolled(`/api/plot?${asked}`, null, every);
  const plot = answer.data;
  return html`<section class="panel curve">
    <h3>${t("Curve")} <${Spans} span=${span} choose=${choose} /></h3>
    <${Stale} answer=${answer} />
    ${plot === null ? html`<div class="canvas waiting"></div>` : html`<${Curve} plot=${plot} marks=${marks} isBoolean=${isBoolean} name=${name} />`}
    ${plot !== null && html`<${Log} plot=${plot} isAsked=${isAsked} ask=${ask} />`}
  </section>`;
}

function Curve({ plot, marks, isBoolean, name }) {
  const hasBand = plot.low !== undefined && plot.high !== undefined;
  const data = useMemo(() => (hasBand ? [plot.t, plot.low, plot.high, plot.value] : [plot.t, plot.value]), [plot]);
  const value = { label: "value", colour: "accent", isStepped: isBoolean };
  const series = hasBand ? [{ label: "low", colour: null }, { label: "high", colour: null }, value] : [value];
  const unit = plot.unit === null ? "" : ` ${plot.unit}`;
  const say = (n) => {
    if (n === null) return plotWords(plot);
    const said = plot.value[n];
    const words = said === null ? t("no value") : `${shown(isBoolean ? said === 1 : said)}${isBoolean ? "" : unit}`;
    const isWide = hasBand && plot.low[n] !== null && plot.low[n] !== plot.high[n];
    return html`<span>${at(new Date(plot.t[n] * 1000).toISOString(), nowMs())}</span> <b>${words}</b>
      ${isWide && html`<span class="of">${t("between {low} and {high}", { low: shown(plot.low[n]), high: shown(plot.high[n]) })}</span>`}`;
  };
  if (plot.t.length === 0) return html`<p class="canvas empty">${t("Nothing is known of this time.")}</p>`;
  return html`<${Chart} name=${t("{name}, curve; arrow keys read it point by point", { name })} data=${data}
    from=${secondsOf(plot.from)} to=${secondsOf(plot.to)} series=${series}
    bands=${hasBand ? [[2, 1, "accent"]] : []} marks=${marks} say=${say} />`;
}

function plotWords({ value, low, high, stepSeconds, origin, unit }) {
  const known = value.filter((each) => each !== null);
  // Values as they were read and logged have no distance that all keep.
  const isInSteps = low !== undefined;
  if (known.length === 0) return t(ORIGINS.none);
  const least = (low ?? value).reduce((a, b) => (b === null ? a : Math.min(a, b)), Infinity);
  const most = (high ?? value).reduce((a, b) => (b === null ? a : Math.max(a, b)), -Infinity);
  return html`<span>${t("{low} to {high}", { low: shown(least), high: shown(most) })} ${unit ?? ""}</span>
    <span class="of">${t(isInSteps ? "{points}, one for {step}, {origin}" : "{points}, usually {step} apart, {origin}", { points: counted(known.length, "point"), step: lasting(stepSeconds), origin: t(ORIGINS[origin]) })}</span>`;
}

/** Button that fills gaps from the service's log. */
function Log({ plot, isAsked, ask }) {
  const { state, why } = plot.history;
  if (state === "off") return why === null ? null : html`<p class="of" lang="en">${why}</p>`;
  if (state === "asked") return html`<p class="of" role="status">${t("Reading the log with spare requests …")}</p>`;
  return html`<p class="ask">
    <button type="button" class="button" disabled=${isAsked && state === "idle"} onClick=${ask}>${isAsked && state === "idle" ? t("log was read") : t("ask the log")}</button>
    <span class="of">${state === "refused" ? html`${t("The log was not had:")} <span lang="en">${why ?? ""}</span>` : (why ?? t("fills what is missing, in what the quota has to spare"))}</span>
  </p>`;
}
