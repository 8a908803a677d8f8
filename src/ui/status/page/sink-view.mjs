import { Chart, pointTimeText } from "/chart.mjs";
import {
  ConfirmButton,
  CopyAddress,
  CopyButton,
  NotFound,
  Panel,
  PasswordHint,
  StaleWarning,
  shellArgument,
  Table,
  ViewTitle,
} from "/components.mjs";
import { countText, valueText } from "/formats.mjs";
import { html, useMemo, useState } from "/htm.mjs";
import { post, usePolledData } from "/status-api.mjs";
import { At } from "/worker-clock.mjs";

const SINK_POLL_MS = 10_000;

export function View({ parts: [name = ""], report }) {
  const response = usePolledData(`/api/sink?${new URLSearchParams({ name })}`, null, SINK_POLL_MS);
  const sink = response.data;
  if (sink === null || response.missing) return html`<${NotFound} answer=${response} what="sink" />`;
  const sinkReport = report.sinks.find((candidate) => candidate.sink === name);
  return html`
    <${ViewTitle} name=${name} above=${[["Sink", null]]}>
      <p><b class=${`state ${sink.state}`}>${sink.state}</b> <span class="of">${sink.connector ?? ""}</span>
        ${sinkReport !== undefined && sinkReport.depth !== null && html` · ${sinkReport.exact ? "" : "≤ "}${countText(sinkReport.depth + sinkReport.again, "event")} behind`}</p>
      <p class="of"><${CopyAddress} /></p>
    </${ViewTitle}>
    <${StaleWarning} answer=${response} />
    ${sink.problem !== null && html`<p class="panel problem">${sink.problem}</p>`}
    <div class="halves">
      <${LastDayChart} name="Behind" words="undelivered events that pass its filter" columns=${sink.lag} />
      <${LastDayChart} name="Rate" words="accepted events per minute" columns=${sink.rate} />
    </div>
    <${DeadLettersPanel} sink=${sink} done=${response.again} />`;
}

function LastDayChart({ name, words, columns }) {
  const { t: times, value } = columns;
  const plotColumns = useMemo(() => [times, value], [columns]);
  const renderPoint = (n) =>
    n === null
      ? html`<span class="of">the last 24 hours</span>`
      : html`${pointTimeText(times[n])} <b>${value[n] === null ? "not known" : countText(value[n], "event")}</b>`;
  return html`<${Panel} level="h3" title=${name} note=${words}>
    <${Chart} name=${name} data=${plotColumns} from=${times[0]} to=${times.at(-1)} series=${[{ label: name, colour: "accent" }]} floor=${0} say=${renderPoint} /><//>`;
}

function DeadLettersPanel({ sink: { sink, dead, deadTotal }, done }) {
  const [resendResult, setResendResult] = useState("");
  const resendDeadLetters = async (ids) => {
    const { message, again } = await post("/api/sink/retry", { name: sink, ...(ids === undefined ? {} : { ids }) });
    if (message === null) setResendResult(`${countText(again, "event")} sent again.`);
    done();
    return message;
  };
  const resendCommand = `plenum outbox resend ${shellArgument(sink)}`;
  const sendAllLabel = `click again to send ${countText(deadTotal, "event")}`;
  const rows = dead.map(
    ({ id, at, type, summary, reason }) => html`<tr key=${id}>
      <td class="when"><${At} time=${at} /></td><td class="minor">${type}</td><td>${summary}</td>
      <td class="problem">${reason}</td>
      <td class="n"><${ConfirmButton} name="send again" again="click again"
        command=${`${resendCommand} ${shellArgument(id)}`} done=${() => resendDeadLetters([id])} /></td></tr>`,
  );
  const tableHead = [["time"], ["kind", "minor"], ["what"], ["why"], [null]];
  return html`<${Panel} kind="dead" level="h3" title="Dead letters" note=${`${valueText(deadTotal)} · events that the sink rejected permanently`}>
    ${
      deadTotal > 0 &&
      html`<${PasswordHint} command=${resendCommand} />
      <p class="ask"><${ConfirmButton} kind="button" name="send all again" again=${sendAllLabel}
        command=${resendCommand} done=${() => resendDeadLetters()} /></p>`
    }
    ${resendResult !== "" && html`<p class="good" role="status">${resendResult}</p>`}
    ${(deadTotal === 0 || dead.length > 0) && html`<${Table} rows=${rows} head=${tableHead} none="None." scroll="Dead letters" />`}
    ${dead.length < deadTotal && html`<p class="quiet">and ${valueText(deadTotal - dead.length)} more. <code>plenum outbox dead ${sink}</code> <${CopyButton} text=${`plenum outbox dead ${sink}`} /></p>`}
  <//>`;
}
