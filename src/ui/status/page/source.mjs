import { Chart, pointTime } from "/chart.mjs";
import { html, useMemo } from "/htm.mjs";
import { t, valueText } from "/language.mjs";
import { CopyAddress, Head, Missing, Panel, Stale, Table } from "/shared-components.mjs";
import { Plan, Source } from "/sources.mjs";
import { At } from "/worker-clock.mjs";
import { usePolled } from "/worker-requests.mjs";

const EVERY_MS = 10_000;
const LANE_COLOURS = [
  ["write", "warn"],
  ["on-demand", "bad"],
  ["live", "accent"],
  ["history", "history"],
  ["spare", "spare"],
];

export function View({ parts: [name = ""], report }) {
  const answer = usePolled(`/api/source?${new URLSearchParams({ name })}`, null, EVERY_MS);
  const source = report.sources.find((each) => each.name === name);
  if (answer.data === null || answer.missing || source === undefined)
    return html`<${Missing} answer=${source === undefined ? { ...answer, missing: true } : answer} what="source" />`;
  const { refused } = answer.data;
  const rows = refused.map(
    ({ at, what, words }, n) =>
      html`<tr key=${`${at} ${n}`}><td class="when"><${At} time=${at} /></td><td>${what}</td><td lang="en">${words}</td></tr>`,
  );
  return html`
    <${Head} name=${name} above=${[[t("Source"), null]]}><p class="of">${source.origin} <${CopyAddress} /></p></${Head}>
    <${Stale} answer=${answer} />
    <${Quota} requests=${answer.data} />
    <div class="halves">
      <div><${Source} source=${source} isLinked=${false} /></div>
      <div>
        <${Plan} source=${source} several=${false} />
        <${Panel} title=${t("Refused or failed")} note=${t("by the service, newest first")}>
          <${Table} rows=${rows} head=${[[t("time")], [t("what")], [t("why")]]} none=${t("Nothing was refused.")} scroll=${t("Refused or failed")} /><//>
      </div>
    </div>`;
}

/** Stacks the lanes, the highest first. An unknown minute is a gap in all lanes. */
function stack({ t: times, lanes }) {
  const columns = [];
  let stackedSums = times.map(() => 0);
  for (const [lane] of LANE_COLOURS) {
    const requests = lanes[lane] ?? [];
    stackedSums = stackedSums.map((sum, n) => (sum === null || requests[n] === null ? null : sum + (requests[n] ?? 0)));
    columns.unshift(stackedSums);
  }
  return [times, ...columns];
}

function Quota({ requests }) {
  const data = useMemo(() => stack(requests), [requests]);
  const { t: times, lanes, allowed, refused } = requests;
  const series = LANE_COLOURS.toReversed().map(([label, colour]) => ({
    ...{ label, colour, fill: colour },
    width: 0.5,
    isStepped: true,
  }));
  const marks = refused.map(({ at }) => ({ t: Date.parse(at) / 1000, colour: "bad" }));
  const say = (n) => {
    if (n === null)
      return html`<span class="of">${t("requests per minute in the last 24 hours; the limit is {allowed}", { allowed: valueText(allowed) })}</span>`;
    const usedLanes = LANE_COLOURS.map(([lane]) => lane).filter((lane) => lanes[lane]?.[n] > 0);
    const laneTexts = usedLanes.map((lane) => `${t(lane)} ${valueText(lanes[lane][n])}`);
    return html`${pointTime(times[n])} <b>${t("{used} of {allowed}", { used: valueText(data[1][n]), allowed: valueText(allowed) })}</b> <span class="of">${laneTexts.join(", ")}</span>`;
  };
  const key = html`<span class="key">${LANE_COLOURS.map(([lane]) => html`<span><i class=${lane}></i> ${t(lane)}</span>`)}</span>`;
  return html`<${Panel} level="h3" title=${t("Quota over time")} extra=${key}>
    <${Chart} name=${t("Quota over time")} data=${data} from=${times[0]} to=${times.at(-1)} series=${series} levels=${[allowed]} marks=${marks} floor=${0} say=${say} /><//>`;
}
