import { html, useEffect, useMemo, useRef, useState } from "/htm.mjs";
import { at, countText, dayOf, intervalText, minuteOf, t, valueText } from "/language.mjs";
import { Choice, Panel, Stale } from "/shared-components.mjs";
import { amend } from "/view-address.mjs";
import { nowMs } from "/worker-clock.mjs";
import { usePolled } from "/worker-requests.mjs";

const DAY_S = 86_400;
let library;
function loadLibrary() {
  library ??= Promise.all([
    import("/uplot.mjs"),
    new Promise((resolve) => {
      const sheet = document.createElement("link");
      Object.assign(sheet, { rel: "stylesheet", href: "/uplot.css", onload: resolve, onerror: resolve });
      document.head.append(sheet);
    }),
  ]).then(
    ([module]) => module.default,
    (error) => {
      library = undefined;
      throw error;
    },
  );
  return library;
}

/** Current value of a colour of the style sheet: a canvas knows no custom properties. */
function colourOf(element, name, alpha = 1) {
  const probe = document.createElement("i");
  probe.style.color =
    alpha === 1 ? `var(--${name})` : `color-mix(in srgb, var(--${name}) ${100 * alpha}%, transparent)`;
  element.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}

/** Labels of the time axis: dates on a long axis; times on a short one, with the date where a day begins. */
function timeLabels(times, step) {
  return times.map((time, n) => {
    const day = dayOf(time * 1000);
    const isNewDay = n > 0 && day !== dayOf(times[n - 1] * 1000);
    return step >= DAY_S || isNewDay ? day : minuteOf(time * 1000);
  });
}

/** Draws horizontal lines at levels, such as the allowed rate, and vertical lines at marks, such as the begin of an alarm. */
function drawLines(plot, levels, marks, colour) {
  const { left, top, width, height } = plot.bbox;
  const { ctx } = plot;
  const drawLine = (name, x, y, toX, toY) => {
    ctx.strokeStyle = colour(name);
    ctx.beginPath();
    ctx.moveTo(x, y);
    ctx.lineTo(toX, toY);
    ctx.stroke();
  };
  ctx.save();
  ctx.lineWidth = 1.5 * devicePixelRatio;
  ctx.setLineDash([4 * devicePixelRatio, 4 * devicePixelRatio]);
  for (const level of levels) {
    const y = Math.round(plot.valToPos(level, "y", true));
    drawLine("text", left, y, left + width, y);
  }
  for (const mark of marks) {
    const x = Math.round(plot.valToPos(mark.t, "x", true));
    if (x >= left && x <= left + width) drawLine(mark.colour, x, top, x, top + height);
  }
  ctx.restore();
}

const sizeOf = (box) => ({ width: Math.max(120, box.clientWidth), height: Math.max(120, box.clientHeight) });

function optionsFor(uPlot, box, { from, to, series, bands, marks, levels, floor }, setPoint, zoomOut) {
  const colour = (name, alpha) => colourOf(box, name, alpha);
  // Everything grows with the root font, which is larger on a wall display.
  const rem = Number.parseFloat(getComputedStyle(document.documentElement).fontSize);
  const axis = {
    stroke: colour("quiet"),
    font: `${0.75 * rem}px ${getComputedStyle(box).fontFamily}`,
    grid: { stroke: colour("line"), width: 1 },
    ticks: { stroke: colour("line"), width: 1, size: 4 },
  };
  return {
    ...sizeOf(box),
    legend: { show: false },
    // Dragging zooms in, a double click zooms out.
    cursor: { points: { size: 7 }, drag: { x: true, y: false }, bind: { dblclick: () => zoomOut } },
    scales: {
      x: { time: true, auto: false, min: from, max: to },
      y: { range: (_, low, high) => rangeOf(low, high === null ? null : Math.max(high, ...levels), floor) },
    },
    series: [
      {},
      ...series.map(({ label, colour: name, width = 1.5, fill, isStepped }) => ({
        label,
        stroke: name === null ? "transparent" : colour(name),
        width: name === null ? 0 : width,
        ...(fill === undefined ? {} : { fill: colour(fill) }),
        ...(isStepped ? { paths: uPlot.paths.stepped({ align: 1 }) } : {}),
        points: { show: name === null ? false : undefined, size: 4 },
        spanGaps: false,
      })),
    ],
    bands: bands.map(([high, low, name]) => ({ series: [high, low], fill: colour(name, 0.22) })),
    axes: [
      { ...axis, size: 2 * rem, space: 4.4 * rem, values: (_, times, __, ___, step) => timeLabels(times, step) },
      {
        ...axis,
        size: (plot, labels) => axisWidth(plot, labels ?? [], rem),
        values: (_, values) =>
          values.map((value) => (value === null ? "" : value.toLocaleString(document.documentElement.lang))),
      },
    ],
    hooks: {
      draw: [(plot) => drawLines(plot, levels, marks, colour)],
      setCursor: [(plot) => setPoint(plot.cursor.idx ?? null)],
    },
  };
}

function axisWidth(plot, labels, rem) {
  const longestLabel = labels.reduce((most, each) => (each.length > most.length ? each : most), "");
  if (longestLabel === "") return 2.75 * rem;
  plot.ctx.font = plot.axes[1].font[0];
  const labelWidth = plot.ctx.measureText(longestLabel).width / devicePixelRatio;
  return Math.max(2.75 * rem, Math.ceil(labelWidth) + 1.1 * rem);
}

/** Range of the value axis: a constant value lies in the middle; with a floor of 0 the axis begins at 0. */
function rangeOf(low, high, floor) {
  if (low === null || high === null) return [floor ?? 0, (floor ?? 0) + 1];
  const bottom = floor === undefined ? low : Math.min(floor, low);
  const margin = Math.max(high - bottom, Math.abs(high) * 0.01, 0.1) * 0.08;
  return [floor === undefined ? bottom - margin : bottom, high + margin];
}

const KEYS = { ArrowLeft: -1, ArrowRight: 1, PageUp: -12, PageDown: 12 };

/**
 * A plot of `data`: seconds since 1970, then a column for each of `series` ({ label, colour, fill?, width?, isStepped? }). `bands`: pairs
 * of series between which is filled; `marks` ({ t, colour }): vertical lines; `levels`: horizontal lines; `floor`: least begin of the
 * axis; `say(n)`: text about the nth point, or about all for null.
 */
export function Chart(props) {
  if (props.data[0].length === 0) return html`<p class="canvas empty">${t("There is no data for this period.")}</p>`;
  return html`<${Plot} ...${props} />`;
}

function Plot({ data, from, to, series, bands = [], marks = [], levels = [], floor, say, name }) {
  const box = useRef(null);
  const plot = useRef(null);
  const [hasFailed, setFailed] = useState(false);
  const [point, setPoint] = useState(null);
  const [isFocused, setFocused] = useState(false);
  const latestData = useRef(data);
  latestData.current = data;
  const range = useRef({ min: from, max: to });
  const plotKey = JSON.stringify([series, bands, marks, levels, floor]);
  const isDark = useDarkScheme();

  useEffect(() => {
    let isUnmounted = false;
    let observer;
    const zoomOut = () => void plot.current?.setScale("x", range.current);
    loadLibrary().then(
      (uPlot) => {
        if (isUnmounted) return;
        const plotParts = { from, to, series, bands, marks, levels, floor };
        const options = optionsFor(uPlot, box.current, plotParts, setPoint, zoomOut);
        plot.current = new uPlot(options, latestData.current, box.current);
        observer = new ResizeObserver(() => {
          const { width, height } = sizeOf(box.current);
          if (width !== plot.current.width || height !== plot.current.height) plot.current.setSize({ width, height });
        });
        observer.observe(box.current);
      },
      () => isUnmounted || setFailed(true),
    );
    return () => {
      isUnmounted = true;
      observer?.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [plotKey, isDark]);
  useEffect(() => {
    const previousRange = range.current;
    range.current = { min: from, max: to };
    if (plot.current === null) return;
    const { min, max } = plot.current.scales.x;
    const isZoomed = min !== previousRange.min || max !== previousRange.max;
    plot.current.setData(data, false);
    plot.current.setScale("x", isZoomed ? { min, max } : range.current);
  }, [data, from, to]);
  const moveByKey = (event) => {
    const stepCount = KEYS[event.key];
    if (stepCount === undefined) return;
    event.preventDefault();
    const [times] = latestData.current;
    if (plot.current === null || times.length === 0) return;
    const shiftedPoint = (point ?? (stepCount > 0 ? -1 : times.length)) + stepCount;
    const nextPoint = Math.min(times.length - 1, Math.max(0, shiftedPoint));
    plot.current.setCursor({ left: plot.current.valToPos(times[nextPoint], "x"), top: 10 });
    setPoint(nextPoint);
  };
  return html`<div class="chart">
    <p class="readout" aria-live=${isFocused ? "polite" : "off"}>${point === null || point >= data[0].length ? say(null) : say(point)}</p>
    ${hasFailed && html`<p class="problem">${t("The plot cannot be loaded now; load the page again.")}</p>`}
    <div class="canvas" ref=${box} tabindex="0" role="application" aria-roledescription=${t("plot")}
      aria-label=${t("{name}, curve; arrow keys read it point by point", { name })}
      onKeyDown=${moveByKey} onFocus=${() => setFocused(true)} onBlur=${() => setFocused(false)}></div>
  </div>`;
}

/** True for the dark colour scheme: a canvas has to be drawn again with its colours. */
function useDarkScheme() {
  const [isDark, setDark] = useState(() => matchMedia("(prefers-color-scheme: dark)").matches);
  useEffect(() => {
    const media = matchMedia("(prefers-color-scheme: dark)");
    const updateScheme = () => setDark(media.matches);
    media.addEventListener("change", updateScheme);
    return () => media.removeEventListener("change", updateScheme);
  }, []);
  return isDark;
}

export const pointTime = (seconds) => html`<span>${at(new Date(seconds * 1000).toISOString(), nowMs())}</span>`;
const SPAN_LABELS = { "6h": "6 hours", "24h": "24 hours", "7d": "7 days", "30d": "30 days" };
const LIVE_MS = 10_000;
const LONG_SPAN_MS = 60_000;
const FETCHING_MS = 3000;
const ORIGINS = {
  read: "from live readings",
  logged: "from the log",
  both: "from live readings and the log",
  none: "no data for this period",
};

const toSeconds = (iso) => Math.round(Date.parse(iso) / 1000);

/** Curve of a tag's values for the span in the address. `marks`: vertical lines, see `Chart`. */
export function TagPlot({ source, id, query, marks = [], isBoolean = false, name }) {
  const [isFetching, setFetching] = useState(false);
  const span = query.get("span") in SPAN_LABELS ? query.get("span") : "24h";
  const parameters = new URLSearchParams({ source, tag: id, span, ...(isFetching ? { fetch: "1" } : {}) });
  const everyMs = isFetching ? FETCHING_MS : span === "6h" || span === "24h" ? LIVE_MS : LONG_SPAN_MS;
  const answer = usePolled(`/api/plot?${parameters}`, null, everyMs);
  const plot = answer.data;
  const chooseSpan = (wanted) => {
    setFetching(false);
    amend({ span: wanted });
  };
  const spans = Object.entries(SPAN_LABELS).map(([each, words]) => [each, t(words)]);
  return html`<${Panel} kind="curve" level="h3" title=${t("Curve")} extra=${html`<${Choice} label=${t("time shown")} options=${spans} chosen=${span} choose=${chooseSpan} />`}>
    <${Stale} answer=${answer} />
    ${plot === null && html`<div class="canvas waiting"></div>`}
    ${
      plot !== null &&
      html`<${Curve} plot=${plot} marks=${marks} isBoolean=${isBoolean} name=${name} />
      <${FetchLog} history=${plot.history} isFetching=${isFetching} fetch=${() => setFetching(true)} />`
    }
  <//>`;
}

function Curve({ plot, marks, isBoolean, name }) {
  const { low, high, value } = plot;
  const hasBand = low !== undefined && high !== undefined;
  const data = useMemo(() => (hasBand ? [plot.t, low, high, value] : [plot.t, value]), [plot]);
  const line = { label: "value", colour: "accent", isStepped: isBoolean };
  const series = hasBand ? [{ label: "low", colour: null }, { label: "high", colour: null }, line] : [line];
  const unit = isBoolean || plot.unit === null ? "" : ` ${plot.unit}`;
  const say = (n) => {
    if (n === null) return plotWords(plot);
    const words = value[n] === null ? t("no value") : `${valueText(isBoolean ? value[n] === 1 : value[n])}${unit}`;
    const isWide = hasBand && low[n] !== null && low[n] !== high[n];
    return html`${pointTime(plot.t[n])} <b>${words}</b>
      ${isWide && html`<span class="of">${t("between {low} and {high}", { low: valueText(low[n]), high: valueText(high[n]) })}</span>`}`;
  };
  return html`<${Chart} name=${name} data=${data} from=${toSeconds(plot.from)} to=${toSeconds(plot.to)} series=${series}
    bands=${hasBand ? [[2, 1, "accent"]] : []} marks=${marks} say=${say} />`;
}

function plotWords({ value, low, high, stepSeconds, origin, unit }) {
  const points = value.filter((each) => each !== null).length;
  if (points === 0) return t(ORIGINS.none);
  const lowest = (low ?? value).reduce((a, b) => (b === null ? a : Math.min(a, b)), Infinity);
  const highest = (high ?? value).reduce((a, b) => (b === null ? a : Math.max(a, b)), -Infinity);
  // Without `low`, the points have no equal distances.
  const textKey = low === undefined ? "{points}, usually {step} apart, {origin}" : "{points}, one for {step}, {origin}";
  const values = { points: countText(points, "point"), step: intervalText(stepSeconds), origin: t(ORIGINS[origin]) };
  return html`<span>${t("{low} to {high}", { low: valueText(lowest), high: valueText(highest) })} ${unit ?? ""}</span>
    <span class="of">${t(textKey, values)}</span>`;
}

function FetchLog({ history: { state, why }, isFetching, fetch }) {
  if (state === "off") return why === null ? null : html`<p class="of" lang="en">${why}</p>`;
  if (state === "asked") return html`<p class="of" role="status">${t("Reading the log with spare requests …")}</p>`;
  const isDone = isFetching && state === "idle";
  return html`<p class="ask">
    <button type="button" class="button" disabled=${isDone} onClick=${fetch}>${isDone ? t("the log was read") : t("read the log")}</button>
    <span class="of">${state === "refused" ? html`${t("The log could not be read:")} <span lang="en">${why ?? ""}</span>` : (why ?? t("fills gaps with spare requests of the quota"))}</span>
  </p>`;
}
