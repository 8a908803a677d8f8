import { usePolled } from "/asking.mjs";
import { Chart } from "/chart.mjs";
import { At, nowMs } from "/clock.mjs";
import { html, useMemo, useState } from "/htm.mjs";
import { t } from "/language.mjs";
import { ordered } from "/order.mjs";
import { Copy, CopyAddress, Head, Missing, Stale, Twice } from "/parts.mjs";
import { argument, ByCommand, needsPassword, PasswordHint } from "/rights.mjs";
import { at, counted, shown } from "/words.mjs";

/** One sink: how far it is behind, how fast it takes, and what it refused. */

const EVERY_MS = 10_000;

export function View({ parts: [name = ""], report }) {
  const answer = usePolled(`/api/sink?${new URLSearchParams({ name })}`, null, EVERY_MS);
  const sink = answer.data;
  if (sink === null || answer.missing) return html`<${Missing} answer=${answer} what="sink" />`;
  const now = report.sinks.find((each) => each.sink === name);
  return html`
    <${Head} name=${name} above=${[[t("Sink"), null]]}>
      <p><b class=${`state ${sink.state}`}>${t(sink.state)}</b> <span class="of">${sink.connector ?? ""}</span>
        ${now !== undefined && now.depth !== null && html` · ${t("{events} behind", { events: `${now.exact ? "" : "≤ "}${counted(now.depth + now.again, "event")}` })}`}</p>
      <p class="of"><${CopyAddress} /></p>
    </${Head}>
    <${Stale} answer=${answer} />
    ${sink.problem !== null && html`<p class="panel problem" lang="en">${sink.problem}</p>`}
    <div class="halves">
      <${Course} name=${t("Behind")} words=${t("events that it has still to get, of those that its filter lets through")} columns=${sink.lag} noun="event" />
      <${Course} name=${t("Rate")} words=${t("events a minute that it accepted")} columns=${sink.rate} noun="event" />
    </div>
    <${Dead} sink=${sink} done=${answer.again} />`;
}

/** Counts of the last day, from 0 on. */
export function Course({ name, words, columns, noun }) {
  const hasBand = columns.high !== undefined && columns.low !== undefined;
  const data = useMemo(
    () => (hasBand ? [columns.t, columns.low, columns.high, columns.value] : [columns.t, columns.value]),
    [columns],
  );
  const { t: times, value } = columns;
  const line = { label: name, colour: "accent" };
  const say = (n) => {
    if (n === null) return html`<span class="of">${t("the last 24 hours")}</span>`;
    const known = value[n];
    return html`<span>${at(new Date(times[n] * 1000).toISOString(), nowMs())}</span> <b>${known === null ? t("not known") : counted(known, noun)}</b>`;
  };
  return html`<section class="panel"><h3>${name} <span class="of">${words}</span></h3>
    ${
      times.length === 0
        ? html`<p class="canvas empty">${t("Nothing is known of this time.")}</p>`
        : html`<${Chart} name=${t("{name}, curve; arrow keys read it point by point", { name })} data=${data} from=${times[0]} to=${times.at(-1)}
            series=${hasBand ? [{ label: "low", colour: null }, { label: "high", colour: null }, line] : [line]} bands=${hasBand ? [[2, 1, "accent"]] : []} floor=${0} say=${say} />`
    }</section>`;
}

function Dead({ sink, done }) {
  const [said, say] = useState("");
  const send = async (ids) => {
    const answer = await ordered("/api/sink/retry", {
      name: sink.sink,
      ...(ids === undefined ? {} : { ids }),
    });
    if (answer.message === null) say(t("{events} sent again.", { events: counted(answer.again, "event") }));
    done();
    return answer.message ?? "";
  };
  const { dead, deadTotal } = sink;
  const command = `plenum outbox resend ${argument(sink.sink)}`;
  return html`<section class="panel dead"><h3>${t("Dead letters")} <span class="of">${shown(deadTotal)} · ${t("what it refused for good")}</span></h3>
    ${deadTotal > 0 && html`<${PasswordHint} command=${command} />`}
    ${
      deadTotal > 0 &&
      html`<p class="ask">${
        needsPassword()
          ? html`<${ByCommand} kind="button" name=${t("send all again")} command=${command} />`
          : html`<${Twice} kind="button" name=${t("send all again")} again=${t("click again to send {events}", { events: counted(deadTotal, "event") })} done=${() => send()} />`
      }</p>`
    }
    ${said !== "" && html`<p class="good" role="status">${said}</p>`}
    ${deadTotal === 0 && html`<p class="quiet">${t("None.")}</p>`}
    ${
      dead.length > 0 &&
      html`<div class="scroll" tabindex="0" role="region" aria-label=${t("Dead letters")}><table>
      <thead><tr><th>${t("time")}</th><th class="minor">${t("kind")}</th><th>${t("what")}</th><th>${t("why")}</th><td></td></tr></thead>
      <tbody>${dead.map(
        (
          each,
        ) => html`<tr key=${each.id}><td class="when"><${At} time=${each.at} /></td><td class="minor">${each.type}</td><td>${each.gist}</td>
        <td class="problem" lang="en">${each.reason}</td><td class="n">${
          needsPassword()
            ? html`<${ByCommand} name=${t("send again")} command=${`${command} ${argument(each.id)}`} />`
            : html`<${Twice} name=${t("send again")} again=${t("click again")} done=${() => send([each.id])} />`
        }</td></tr>`,
      )}</tbody></table></div>`
    }
    ${dead.length < deadTotal && html`<p class="quiet">${t("and {count} more", { count: shown(deadTotal - dead.length) })}. <code>plenum outbox dead ${sink.sink}</code> <${Copy} text=${`plenum outbox dead ${sink.sink}`} /></p>`}
  </section>`;
}
