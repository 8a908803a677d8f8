import { Chart, pointTime } from "/chart.mjs";
import { html, useMemo, useState } from "/htm.mjs";
import { countText, t, valueText } from "/language.mjs";
import {
  argument,
  ByCommand,
  Copy,
  CopyAddress,
  Head,
  Missing,
  needsPassword,
  Panel,
  PasswordHint,
  Stale,
  Table,
  Twice,
} from "/shared-components.mjs";
import { At } from "/worker-clock.mjs";
import { post, usePolled } from "/worker-requests.mjs";

const EVERY_MS = 10_000;

export function View({ parts: [name = ""], report }) {
  const answer = usePolled(`/api/sink?${new URLSearchParams({ name })}`, null, EVERY_MS);
  const sink = answer.data;
  if (sink === null || answer.missing) return html`<${Missing} answer=${answer} what="sink" />`;
  const sinkReport = report.sinks.find((each) => each.sink === name);
  return html`
    <${Head} name=${name} above=${[[t("Sink"), null]]}>
      <p><b class=${`state ${sink.state}`}>${t(sink.state)}</b> <span class="of">${sink.connector ?? ""}</span>
        ${sinkReport !== undefined && sinkReport.depth !== null && html` · ${t("{events} behind", { events: `${sinkReport.exact ? "" : "≤ "}${countText(sinkReport.depth + sinkReport.again, "event")}` })}`}</p>
      <p class="of"><${CopyAddress} /></p>
    </${Head}>
    <${Stale} answer=${answer} />
    ${sink.problem !== null && html`<p class="panel problem" lang="en">${sink.problem}</p>`}
    <div class="halves">
      <${LastDay} name=${t("Behind")} words=${t("undelivered events that pass its filter")} columns=${sink.lag} />
      <${LastDay} name=${t("Rate")} words=${t("accepted events per minute")} columns=${sink.rate} />
    </div>
    <${DeadLetters} sink=${sink} done=${answer.again} />`;
}

function LastDay({ name, words, columns }) {
  const { t: times, value } = columns;
  const data = useMemo(() => [times, value], [columns]);
  const say = (n) =>
    n === null
      ? html`<span class="of">${t("the last 24 hours")}</span>`
      : html`${pointTime(times[n])} <b>${value[n] === null ? t("not known") : countText(value[n], "event")}</b>`;
  return html`<${Panel} level="h3" title=${name} note=${words}>
    <${Chart} name=${name} data=${data} from=${times[0]} to=${times.at(-1)} series=${[{ label: name, colour: "accent" }]} floor=${0} say=${say} /><//>`;
}

function DeadLetters({ sink: { sink, dead, deadTotal }, done }) {
  const [result, setResult] = useState("");
  const send = async (ids) => {
    const { message, again } = await post("/api/sink/retry", { name: sink, ...(ids === undefined ? {} : { ids }) });
    if (message === null) setResult(t("{events} sent again.", { events: countText(again, "event") }));
    done();
    return message;
  };
  const command = `plenum outbox resend ${argument(sink)}`;
  const sendAllLabel = t("click again to send {events}", { events: countText(deadTotal, "event") });
  const rows = dead.map(
    ({ id, at, type, gist, reason }) => html`<tr key=${id}>
      <td class="when"><${At} time=${at} /></td><td class="minor">${type}</td><td>${gist}</td>
      <td class="problem" lang="en">${reason}</td>
      <td class="n">${
        needsPassword()
          ? html`<${ByCommand} name=${t("send again")} command=${`${command} ${argument(id)}`} />`
          : html`<${Twice} name=${t("send again")} again=${t("click again")} done=${() => send([id])} />`
      }</td></tr>`,
  );
  const head = [[t("time")], [t("kind"), "minor"], [t("what")], [t("why")], [null]];
  return html`<${Panel} kind="dead" level="h3" title=${t("Dead letters")} note=${`${valueText(deadTotal)} · ${t("events that the sink rejected permanently")}`}>
    ${
      deadTotal > 0 &&
      html`<${PasswordHint} command=${command} />
      <p class="ask">${
        needsPassword()
          ? html`<${ByCommand} kind="button" name=${t("send all again")} command=${command} />`
          : html`<${Twice} kind="button" name=${t("send all again")} again=${sendAllLabel} done=${() => send()} />`
      }</p>`
    }
    ${result !== "" && html`<p class="good" role="status">${result}</p>`}
    ${(deadTotal === 0 || dead.length > 0) && html`<${Table} rows=${rows} head=${head} none=${t("None.")} scroll=${t("Dead letters")} />`}
    ${dead.length < deadTotal && html`<p class="quiet">${t("and {count} more", { count: valueText(deadTotal - dead.length) })}. <code>plenum outbox dead ${sink}</code> <${Copy} text=${`plenum outbox dead ${sink}`} /></p>`}
  <//>`;
}
