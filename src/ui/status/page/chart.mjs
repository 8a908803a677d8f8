import { ChoiceButtons, Panel, StaleWarning } from "/components.mjs";
import { at, countText, hourAndMinute, intervalText, shortDate, valueText } from "/formats.mjs";
import { html, useEffect, useMemo, useRef, useState } from "/htm.mjs";
import { usePolledData } from "/status-api.mjs";
import { amendViewQuery } from "/view-url.mjs";
import { nowMs } from "/worker-clock.mjs";

const DAY_S = 86_400;
let plotLibrary;
function loadPlotLibrary() {
  plotLibrary ??= Promise.all([
    import("/uplot.mjs"),
    new Promise((resolve) => {
      const styleSheetLink = document.createElement("link");
      Object.assign(styleSheetLink, { rel: "stylesheet", href: "/uplot.css", onload: resolve, onerror: resolve });
      document.head.append(styleSheetLink);
    }),
  ]).then(
    ([module]) => module.default,
    (error) => {
      plotLibrary = undefined;
      throw error;
    },
  );
  return plotLibrary;
}

/** Computes the current value of a theme colour, because a canvas cannot use CSS variables. */
function styleColourOf(element, name, alpha = 1) {
  const colourProbe = document.createElement("i");
  colourProbe.style.color =
    alpha === 1 ? `var(--${name})` : `color-mix(in srgb, var(--${name}) ${100 * alpha}%, transparent)`;
  element.append(colourProbe);
  const { color } = getComputedStyle(colourProbe);
  colourProbe.remove();
  return color;
}

/** Labels a long time axis with dates, and a short one with times and the date where a day begins. */
function timeLabels(times, stepS) {
  return times.map((time, n) => {
    const day = shortDate(time * 1000);
    const isNewDay = n > 0 && day !== shortDate(times[n - 1] * 1000);
    return stepS >= DAY_S || isNewDay ? day : hourAndMinute(time * 1000);
  });
}

/** Draws horizontal lines, such as the allowed rate, and vertical lines, such as the begin of an alarm. */
function drawMarkLines(plot, levels, marks, colour) {
  const { left, top, width, height } = plot.bbox;
  const { ctx } = plot;
  const drawPlotLine = (name, x, y, toX, toY) => {
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
    drawPlotLine("text", left, y, left + width, y);
  }
  for (const mark of marks) {
    const x = Math.round(plot.valToPos(mark.t, "x", true));
    if (x >= left && x <= left + width) drawPlotLine(mark.colour, x, top, x, top + height);
  }
  ctx.restore();
}

const plotSizeOf = (box) => ({ width: Math.max(120, box.clientWidth), height: Math.max(120, box.clientHeight) });

function plotOptionsFor(uPlot, box, { from, to, series, bands, marks, levels, floor }, setPoint, zoomOut) {
  const themeColourOf = (name, alpha) => styleColourOf(box, name, alpha);
  // Sizes grow with the root font, which is larger on a wall display.
  const remPx = Number.parseFloat(getComputedStyle(document.documentElement).fontSize);
  const axis = {
    stroke: themeColourOf("quiet"),
    font: `${0.75 * remPx}px ${getComputedStyle(box).fontFamily}`,
    grid: { stroke: themeColourOf("line"), width: 1 },
    ticks: { stroke: themeColourOf("line"), width: 1, size: 4 },
  };
  return {
    ...plotSizeOf(box),
    legend: { show: false },
    // Dragging zooms in, a double click zooms out.
    cursor: { points: { size: 7 }, drag: { x: true, y: false }, bind: { dblclick: () => zoomOut } },
    scales: {
      x: { time: true, auto: false, min: from, max: to },
      y: { range: (_, low, high) => valueAxisRange(low, high === null ? null : Math.max(high, ...levels), floor) },
    },
    series: [
      {},
      ...series.map(({ label, colour: colourName, width = 1.5, fill, isStepped }) => ({
        label,
        stroke: colourName === null ? "transparent" : themeColourOf(colourName),
        width: colourName === null ? 0 : width,
        ...(fill === undefined ? {} : { fill: themeColourOf(fill) }),
        ...(isStepped ? { paths: uPlot.paths.stepped({ align: 1 }) } : {}),
        points: { show: colourName === null ? false : undefined, size: 4 },
        spanGaps: false,
      })),
    ],
    bands: bands.map(([high, low, colourName]) => ({ series: [high, low], fill: themeColourOf(colourName, 0.22) })),
    axes: [
      { ...axis, size: 2 * remPx, space: 4.4 * remPx, values: (_, times, __, ___, step) => timeLabels(times, step) },
      {
        ...axis,
        size: (plot, labels) => valueAxisWidth(plot, labels ?? [], remPx),
        values: (_, values) => values.map((value) => (value === null ? "" : valueText(value))),
      },
    ],
    hooks: {
      draw: [(plot) => drawMarkLines(plot, levels, marks, themeColourOf)],
      setCursor: [(plot) => setPoint(plot.cursor.idx ?? null)],
    },
  };
}

function valueAxisWidth(plot, labels, remPx) {
  const longestLabel = labels.reduce((longest, label) => (label.length > longest.length ? label : longest), "");
  if (longestLabel === "") return 2.75 * remPx;
  plot.ctx.font = plot.axes[1].font[0];
  const labelWidthPx = plot.ctx.measureText(longestLabel).width / devicePixelRatio;
  return Math.max(2.75 * remPx, Math.ceil(labelWidthPx) + 1.1 * remPx);
}

/** Returns the range of the value axis; a constant value is in its middle. `floor`: value to include. */
function valueAxisRange(low, high, floor) {
  if (low === null || high === null) return [floor ?? 0, (floor ?? 0) + 1];
  const axisBottom = floor === undefined ? low : Math.min(floor, low);
  const axisMargin = Math.max(high - axisBottom, Math.abs(high) * 0.01, 0.1) * 0.08;
  return [floor === undefined ? axisBottom - axisMargin : axisBottom, high + axisMargin];
}

const POINT_STEPS_BY_KEY = { ArrowLeft: -1, ArrowRight: 1, PageUp: -12, PageDown: 12 };

/**
 * Plots `data`: seconds since 1970, then a column for each of `series` ({ label, colour, fill?, width?, isStepped? }).
 * `bands`: pairs of series with a filled area between them. `marks` ({ t, colour }): vertical lines. `levels`:
 * horizontal lines. `floor`: value that the axis includes. `say(n)`: text about the nth point; if n is null, about all.
 */
export function Chart(props) {
  if (props.data[0].length === 0) return html`<p class="canvas empty">There is no data for this period.</p>`;
  return html`<${PlotCanvas} ...${props} />`;
}

function PlotCanvas({ data, from, to, series, bands = [], marks = [], levels = [], floor, say, name }) {
  const plotBox = useRef(null);
  const plot = useRef(null);
  const [hasFailed, setFailed] = useState(false);
  const [pointIndex, setPointIndex] = useState(null);
  const [isFocused, setFocused] = useState(false);
  const latestData = useRef(data);
  latestData.current = data;
  const timeRange = useRef({ min: from, max: to });
  const plotOptionsKey = JSON.stringify([series, bands, marks, levels, floor]);
  const isDarkScheme = useDarkScheme();

  useEffect(() => {
    let isUnmounted = false;
    let sizeObserver;
    const zoomOut = () => void plot.current?.setScale("x", timeRange.current);
    loadPlotLibrary().then(
      (uPlot) => {
        if (isUnmounted) return;
        const plotContent = { from, to, series, bands, marks, levels, floor };
        const options = plotOptionsFor(uPlot, plotBox.current, plotContent, setPointIndex, zoomOut);
        plot.current = new uPlot(options, latestData.current, plotBox.current);
        sizeObserver = new ResizeObserver(() => {
          const { width, height } = plotSizeOf(plotBox.current);
          if (width !== plot.current.width || height !== plot.current.height) plot.current.setSize({ width, height });
        });
        sizeObserver.observe(plotBox.current);
      },
      () => isUnmounted || setFailed(true),
    );
    return () => {
      isUnmounted = true;
      sizeObserver?.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [plotOptionsKey, isDarkScheme]);
  useEffect(() => {
    const previousTimeRange = timeRange.current;
    timeRange.current = { min: from, max: to };
    if (plot.current === null) return;
    const { min, max } = plot.current.scales.x;
    const isZoomed = min !== previousTimeRange.min || max !== previousTimeRange.max;
    plot.current.setData(data, false);
    plot.current.setScale("x", isZoomed ? { min, max } : timeRange.current);
  }, [data, from, to]);
  const movePointByKey = (event) => {
    const pointSteps = POINT_STEPS_BY_KEY[event.key];
    if (pointSteps === undefined) return;
    event.preventDefault();
    const [times] = latestData.current;
    if (plot.current === null || times.length === 0) return;
    const shiftedIndex = (pointIndex ?? (pointSteps > 0 ? -1 : times.length)) + pointSteps;
    const nextIndex = Math.min(times.length - 1, Math.max(0, shiftedIndex));
    plot.current.setCursor({ left: plot.current.valToPos(times[nextIndex], "x"), top: 10 });
    setPointIndex(nextIndex);
  };
  return html`<div class="chart">
    <p class="readout" aria-live=${isFocused ? "polite" : "off"}>${pointIndex === null || pointIndex >= data[0].length ? say(null) : say(pointIndex)}</p>
    ${hasFailed && html`<p class="problem">The plot cannot be loaded now; load the page again.</p>`}
    <div class="canvas" ref=${plotBox} tabindex="0" role="application" aria-roledescription="plot"
      aria-label=${`${name}, curve; arrow keys read it point by point`}
      onKeyDown=${movePointByKey} onFocus=${() => setFocused(true)} onBlur=${() => setFocused(false)}></div>
  </div>`;
}

/** True for the dark colour scheme; the plot must be drawn again when the scheme changes. */
function useDarkScheme() {
  const [isDark, setDark] = useState(() => matchMedia("(prefers-color-scheme: dark)").matches);
  useEffect(() => {
    const darkSchemeQuery = matchMedia("(prefers-color-scheme: dark)");
    const updateColourScheme = () => setDark(darkSchemeQuery.matches);
    darkSchemeQuery.addEventListener("change", updateColourScheme);
    return () => darkSchemeQuery.removeEventListener("change", updateColourScheme);
  }, []);
  return isDark;
}

export const pointTimeText = (seconds) => html`<span>${at(new Date(seconds * 1000).toISOString(), nowMs())}</span>`;
const TIME_SPAN_LABELS = { "6h": "6 hours", "24h": "24 hours", "7d": "7 days", "30d": "30 days" };
const LIVE_POLL_MS = 10_000;
const SLOW_POLL_MS = 60_000;
const FETCHING_POLL_MS = 3000;
const ORIGIN_LABELS = {
  read: "from live readings",
  logged: "from the log",
  both: "from live readings and the log",
  none: "no data for this period",
};

const secondsOfTime = (iso) => Math.round(Date.parse(iso) / 1000);

/** Draws a tag's values in the time span that the page's address names. `marks`: vertical lines, see `Chart`. */
export function TagPlot({ source, id, query, marks = [], isBoolean = false, name }) {
  const [isFetching, setFetching] = useState(false);
  const timeSpan = query.get("span") in TIME_SPAN_LABELS ? query.get("span") : "24h";
  const parameters = new URLSearchParams({ source, tag: id, span: timeSpan, ...(isFetching ? { fetch: "1" } : {}) });
  const pollMs = isFetching ? FETCHING_POLL_MS : timeSpan === "6h" || timeSpan === "24h" ? LIVE_POLL_MS : SLOW_POLL_MS;
  const response = usePolledData(`/api/plot?${parameters}`, null, pollMs);
  const plot = response.data;
  const chooseTimeSpan = (newTimeSpan) => {
    setFetching(false);
    amendViewQuery({ span: newTimeSpan });
  };
  return html`<${Panel} kind="curve" level="h3" title="Curve" extra=${html`<${ChoiceButtons} label="time shown" options=${Object.entries(TIME_SPAN_LABELS)} chosen=${timeSpan} choose=${chooseTimeSpan} />`}>
    <${StaleWarning} answer=${response} />
    ${plot === null && html`<div class="canvas waiting"></div>`}
    ${
      plot !== null &&
      html`<${ValueCurve} plot=${plot} marks=${marks} isBoolean=${isBoolean} name=${name} />
      <${HistoryFetchButton} history=${plot.history} isFetching=${isFetching} fetch=${() => setFetching(true)} />`
    }
  <//>`;
}

function ValueCurve({ plot, marks, isBoolean, name }) {
  const { low, high, value } = plot;
  const hasBand = low !== undefined && high !== undefined;
  const plotColumns = useMemo(() => (hasBand ? [plot.t, low, high, value] : [plot.t, value]), [plot]);
  const valueLine = { label: "value", colour: "accent", isStepped: isBoolean };
  const series = hasBand ? [{ label: "low", colour: null }, { label: "high", colour: null }, valueLine] : [valueLine];
  const unitSuffix = isBoolean || plot.unit === null ? "" : ` ${plot.unit}`;
  const renderPoint = (n) => {
    if (n === null) return plotSummary(plot);
    const pointValueText =
      value[n] === null ? "no value" : `${valueText(isBoolean ? value[n] === 1 : value[n])}${unitSuffix}`;
    const hasWideBand = hasBand && low[n] !== null && low[n] !== high[n];
    return html`${pointTimeText(plot.t[n])} <b>${pointValueText}</b>
      ${hasWideBand && html`<span class="of">between ${valueText(low[n])} and ${valueText(high[n])}</span>`}`;
  };
  return html`<${Chart} name=${name} data=${plotColumns} from=${secondsOfTime(plot.from)} to=${secondsOfTime(plot.to)} series=${series}
    bands=${hasBand ? [[2, 1, "accent"]] : []} marks=${marks} say=${renderPoint} />`;
}

function plotSummary({ value, low, high, stepSeconds, origin, unit }) {
  const pointCount = value.filter((pointValue) => pointValue !== null).length;
  if (pointCount === 0) return ORIGIN_LABELS.none;
  const lowestValue = (low ?? value).reduce((a, b) => (b === null ? a : Math.min(a, b)), Infinity);
  const highestValue = (high ?? value).reduce((a, b) => (b === null ? a : Math.max(a, b)), -Infinity);
  // A response without `low` has readings at irregular times as points, not summaries of equal time steps.
  const stepText =
    low === undefined ? `usually ${intervalText(stepSeconds)} apart` : `one for ${intervalText(stepSeconds)}`;
  return html`<span>${valueText(lowestValue)} to ${valueText(highestValue)} ${unit ?? ""}</span>
    <span class="of">${countText(pointCount, "point")}, ${stepText}, ${ORIGIN_LABELS[origin]}</span>`;
}

function HistoryFetchButton({ history: { state, why }, isFetching, fetch }) {
  if (state === "off") return why === null ? null : html`<p class="of">${why}</p>`;
  if (state === "asked") return html`<p class="of" role="status">Reading the log with spare requests …</p>`;
  const isHistoryFetched = isFetching && state === "idle";
  return html`<p class="ask">
    <button type="button" class="button" disabled=${isHistoryFetched} onClick=${fetch}>${isHistoryFetched ? "the log was read" : "read the log"}</button>
    <span class="of">${state === "refused" ? html`The log could not be read: ${why ?? ""}` : (why ?? "fills gaps with spare requests of the quota")}</span>
  </p>`;
}
