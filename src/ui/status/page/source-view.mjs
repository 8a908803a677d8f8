import { Chart, pointTimeText } from "/chart.mjs";
import { CopyAddress, NotFound, Panel, StaleWarning, Table, ViewTitle } from "/components.mjs";
import { valueText } from "/formats.mjs";
import { html, useMemo } from "/htm.mjs";
import { QuotaPlanPanel, SourcePanel } from "/source-panels.mjs";
import { usePolledData } from "/status-api.mjs";
import { At } from "/worker-clock.mjs";

const SOURCE_POLL_MS = 10_000;
const QUOTA_LANE_COLOURS = [
  ["write", "warn"],
  ["on-demand", "bad"],
  ["live", "accent"],
  ["history", "history"],
  ["spare", "spare"],
];

export function View({ parts: [name = ""], report }) {
  const response = usePolledData(`/api/source?${new URLSearchParams({ name })}`, null, SOURCE_POLL_MS);
  const source = report.sources.find((candidate) => candidate.name === name);
  if (response.data === null || response.missing || source === undefined)
    return html`<${NotFound} answer=${source === undefined ? { ...response, missing: true } : response} what="source" />`;
  const { refused } = response.data;
  const refusalRows = refused.map(
    ({ at, what, words }, n) =>
      html`<tr key=${`${at} ${n}`}><td class="when"><${At} time=${at} /></td><td>${what}</td><td>${words}</td></tr>`,
  );
  return html`
    <${ViewTitle} name=${name} above=${[["Source", null]]}><p class="of">${source.origin} <${CopyAddress} /></p></${ViewTitle}>
    <${StaleWarning} answer=${response} />
    <${QuotaChart} requests=${response.data} />
    <div class="halves">
      <div><${SourcePanel} source=${source} isLinked=${false} /></div>
      <div>
        <${QuotaPlanPanel} source=${source} several=${false} />
        <${Panel} title="Refused or failed" note="by the service, newest first">
          <${Table} rows=${refusalRows} head=${[["time"], ["what"], ["why"]]} none="Nothing was refused." scroll="Refused or failed" /><//>
      </div>
    </div>`;
}

/** Stacks the requests of all quota lanes. A minute that is unknown in one lane is a gap in all lanes. */
function stackLaneRequests({ t: times, lanes }) {
  const laneColumns = [];
  let stackedSums = times.map(() => 0);
  for (const [lane] of QUOTA_LANE_COLOURS) {
    const requests = lanes[lane] ?? [];
    stackedSums = stackedSums.map((sum, n) => (sum === null || requests[n] === null ? null : sum + (requests[n] ?? 0)));
    laneColumns.unshift(stackedSums);
  }
  return [times, ...laneColumns];
}

function QuotaChart({ requests }) {
  const plotColumns = useMemo(() => stackLaneRequests(requests), [requests]);
  const { t: times, lanes, allowed, refused } = requests;
  const laneSeries = QUOTA_LANE_COLOURS.toReversed().map(([label, colour]) => ({
    ...{ label, colour, fill: colour },
    width: 0.5,
    isStepped: true,
  }));
  const refusalMarks = refused.map(({ at }) => ({ t: Date.parse(at) / 1000, colour: "bad" }));
  const renderPoint = (n) => {
    if (n === null)
      return html`<span class="of">requests per minute in the last 24 hours; the limit is ${valueText(allowed)}</span>`;
    const usedQuotaLanes = QUOTA_LANE_COLOURS.map(([lane]) => lane).filter((lane) => lanes[lane]?.[n] > 0);
    const laneTexts = usedQuotaLanes.map((lane) => `${lane} ${valueText(lanes[lane][n])}`);
    return html`${pointTimeText(times[n])} <b>${valueText(plotColumns[1][n])} of ${valueText(allowed)}</b> <span class="of">${laneTexts.join(", ")}</span>`;
  };
  const laneLegend = html`<span class="key">${QUOTA_LANE_COLOURS.map(([lane]) => html`<span><i class=${lane}></i> ${lane}</span>`)}</span>`;
  return html`<${Panel} level="h3" title="Quota over time" extra=${laneLegend}>
    <${Chart} name="Quota over time" data=${plotColumns} from=${times[0]} to=${times.at(-1)} series=${laneSeries} levels=${[allowed]} marks=${refusalMarks} floor=${0} say=${renderPoint} /><//>`;
}
