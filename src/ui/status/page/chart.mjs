import { html, useEffect, useRef, useState } from "/htm.mjs";
import { t } from "/language.mjs";
import { dayOf, minuteOf } from "/words.mjs";

/** A drawing of columns by uPlot, which is loaded with the first one. */

const DAY_S = 86_400;

let library;
/** Loads the chart library with its style sheet on demand. */
function uPlotLoaded() {
  library ??= Promise.all([
    import("/uplot.mjs"),
    new Promise((resolve) => {
      const sheet = document.createElement("link");
      sheet.rel = "stylesheet";
      sheet.href = "/uplot.css";
      sheet.onload = resolve;
      sheet.onerror = resolve;
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

/** A canvas knows no custom properties: what a colour of the style sheet is now, in this scheme. */
function colourOf(element, name, alpha = 1) {
  const probe = document.createElement("i");
  probe.style.color =
    alpha === 1 ? `var(--${name})` : `color-mix(in srgb, var(--${name}) ${100 * alpha}%, transparent)`;
  element.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}

/** Days where the axis is long, times of the day where it is short; the day stands where one begins. */
function timeWords(times, step) {
  return times.map((time, n) => {
    const ms = time * 1000;
    if (step >= DAY_S) return dayOf(ms);
    const isNewDay = n === 0 ? false : dayOf(ms) !== dayOf(times[n - 1] * 1000);
    return isNewDay ? dayOf(ms) : minuteOf(ms);
  });
}

/** Lines across at heights that mean something, such as what is allowed. */
function levelsOn(levels, colour) {
  return (plot) => {
    const { left, width } = plot.bbox;
    for (const level of levels) {
      const y = Math.round(plot.valToPos(level, "y", true));
      dashed(plot, colour("text"), [left, y], [left + width, y]);
    }
  };
}

function dashed({ ctx }, colour, [fromX, fromY], [toX, toY]) {
  ctx.save();
  ctx.strokeStyle = colour;
  ctx.lineWidth = 1.5 * devicePixelRatio;
  ctx.setLineDash([4 * devicePixelRatio, 4 * devicePixelRatio]);
  ctx.beginPath();
  ctx.moveTo(fromX, fromY);
  ctx.lineTo(toX, toY);
  ctx.stroke();
  ctx.restore();
}

/** How large things are: with the root, whose letters grow on a wall. */
function sizes(box) {
  const rem = Number.parseFloat(getComputedStyle(document.documentElement).fontSize);
  return { rem, width: Math.max(120, box.clientWidth), height: Math.max(120, box.clientHeight) };
}

/** Vertical lines at times that mean something, such as when an alarm was raised. */
function marksOn(marks, colour) {
  return (plot) => {
    const { bbox } = plot;
    for (const mark of marks) {
      const x = Math.round(plot.valToPos(mark.t, "x", true));
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      dashed(plot, colour(mark.colour), [x, bbox.top], [x, bbox.top + bbox.height]);
    }
  };
}

function optionsFor(uPlot, { box, from, to, series, bands, marks, levels, floor, told, whole }) {
  const colour = (name, alpha) => colourOf(box, name, alpha);
  const { rem, width, height } = sizes(box);
  const font = `${0.75 * rem}px ${getComputedStyle(box).fontFamily}`;
  const axis = {
    stroke: colour("quiet"),
    font,
    grid: { stroke: colour("line"), width: 1 },
    ticks: { stroke: colour("line"), width: 1, size: 4 },
  };
  return {
    width,
    height,
    legend: { show: false },
    // Drawn over to look closer; twice pressed to see all again.
    cursor: { points: { size: 7 }, drag: { x: true, y: false }, bind: { dblclick: () => whole } },
    scales: {
      x: { time: true, auto: false, min: from, max: to },
      y: { range: (_, low, high) => rangeOf(low, highestOf(high, levels), floor) },
    },
    series: [
      {},
      ...series.map((each) => ({
        label: each.label,
        stroke: each.colour === null ? "transparent" : colour(each.colour),
        width: each.colour === null ? 0 : (each.width ?? 1.5),
        ...(each.fill === undefined ? {} : { fill: colour(each.fill) }),
        ...(each.isStepped ? { paths: uPlot.paths.stepped({ align: 1 }) } : {}),
        points: { show: each.colour === null ? false : undefined, size: 4 },
        spanGaps: false,
      })),
    ],
    bands: bands.map(([high, low, name]) => ({ series: [high, low], fill: colour(name, 0.22) })),
    axes: [
      {
        ...axis,
        size: 2 * rem,
        space: 4.4 * rem,
        values: (_, times, __, ___, step) => timeWords(times, step),
      },
      {
        ...axis,
        size: (plot, values) => axisSize(plot, values, rem),
        values: (_, values) => values.map((value) => numberWords(value)),
      },
    ],
    hooks: {
      draw: [marksOn(marks, colour), levelsOn(levels, colour)],
      setCursor: [(plot) => told(plot.cursor.idx ?? null)],
    },
  };
}

const numberWords = (value) => (value === null ? "" : value.toLocaleString(document.documentElement.lang));

/** As wide as its longest number, so that none is cut. */
function axisSize(plot, values, rem) {
  const longest = (values ?? []).reduce((most, each) => (each.length > most.length ? each : most), "");
  if (longest === "") return 2.75 * rem;
  plot.ctx.font = plot.axes[1].font[0];
  const text = plot.ctx.measureText(longest).width / devicePixelRatio;
  return Math.max(2.75 * rem, Math.ceil(text) + 1.1 * rem);
}

const highestOf = (high, levels) => (high === null ? null : Math.max(high, ...levels));

/** A steady value lies in the middle, and a count begins at 0. */
function rangeOf(low, high, floor) {
  if (low === null || high === null) return [floor ?? 0, (floor ?? 0) + 1];
  const bottom = floor === undefined ? low : Math.min(floor, low);
  const room = Math.max(high - bottom, Math.abs(high) * 0.01, 0.1) * 0.08;
  return [floor === undefined ? bottom - room : bottom, high + room];
}

/**
 * `data`: seconds since 1970, then a column for each of `series` ({ label, colour, fill?, width?, isStepped? });
 * `bands`: pairs of series between which is filled; `marks`: lines at times; `say(n)`: words about the nth point;
 * `levels`: lines across; `floor`: where the axis begins at the latest.
 */
export function Chart({ data, from, to, series, bands = [], marks = [], levels = [], floor, say, name }) {
  const box = useRef(null);
  const plot = useRef(null);
  const [failed, fail] = useState(false);
  const [point, setPoint] = useState(null);
  const [isFocused, setFocused] = useState(false);
  const shape = JSON.stringify([series, bands, marks, levels, floor]);
  const scheme = useScheme();
  const latest = useRef(data);
  latest.current = data;
  const all = useRef({ min: from, max: to });
  const whole = () => void plot.current?.setScale("x", all.current);

  useEffect(() => {
    let over = false;
    let sized;
    uPlotLoaded().then(
      (uPlot) => {
        if (over) return;
        const options = {
          box: box.current,
          from,
          to,
          series,
          bands,
          marks,
          levels,
          floor,
          told: setPoint,
          whole,
        };
        plot.current = new uPlot(optionsFor(uPlot, options), latest.current, box.current);
        sized = new ResizeObserver(() => {
          const { width, height } = sizes(box.current);
          if (width !== plot.current.width || height !== plot.current.height) plot.current.setSize({ width, height });
        });
        sized.observe(box.current);
      },
      () => over || fail(true),
    );
    return () => {
      over = true;
      sized?.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [shape, scheme]);
  useEffect(() => {
    const before = all.current;
    all.current = { min: from, max: to };
    if (plot.current === null) return;
    const { min, max } = plot.current.scales.x;
    const isWhole = min === before.min && max === before.max;
    plot.current.setData(data, false);
    // Keep the zoom of the user.
    plot.current.setScale("x", isWhole ? all.current : { min, max });
  }, [data, from, to]);

  const step = (by) => {
    const [times] = latest.current;
    if (plot.current === null || times.length === 0) return;
    const place = Math.min(times.length - 1, Math.max(0, (point ?? (by > 0 ? -1 : times.length)) + by));
    plot.current.setCursor({ left: plot.current.valToPos(times[place], "x"), top: 10 });
    setPoint(place);
  };
  const press = (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1, PageUp: -12, PageDown: 12 }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    step(by);
  };
  return html`<div class="chart">
    <p class="readout" aria-live=${isFocused ? "polite" : "off"}>${point === null || point >= data[0].length ? say(null) : say(point)}</p>
    ${failed && html`<p class="problem">${t("The plot cannot be loaded now; load the page again.")}</p>`}
    <div class="canvas" ref=${box} tabindex="0" role="application" aria-label=${name} aria-roledescription=${t("plot")}
      onKeyDown=${press} onFocus=${() => setFocused(true)} onBlur=${() => setFocused(false)}></div>
  </div>`;
}

/** Light or dark: the colours of a canvas do not follow by themselves. */
function useScheme() {
  const [isDark, set] = useState(() => matchMedia("(prefers-color-scheme: dark)").matches);
  useEffect(() => {
    const media = matchMedia("(prefers-color-scheme: dark)");
    const change = () => set(media.matches);
    media.addEventListener("change", change);
    return () => media.removeEventListener("change", change);
  }, []);
  return isDark;
}
