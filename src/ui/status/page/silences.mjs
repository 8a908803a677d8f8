import { nowMs } from "/clock.mjs";
import { html, useState } from "/htm.mjs";
import { t } from "/language.mjs";
import { order } from "/order.mjs";
import { Stale, Twice } from "/parts.mjs";
import { argument, ByCommand, needsPassword, PasswordHint } from "/rights.mjs";
import { at, shown, until } from "/words.mjs";

/** Agreed times in which people are not told of alarms: what there is, beginning one and ending one. */

const LENGTHS = [
  [60, "1 h"],
  [240, "4 h"],
  [1440, "1 d"],
];
/** As many characters as the worker takes. */
const LONGEST_REASON = 500;
const MOST_SHOWN = 100;

const commandFor = ({ source, alarm, site }) =>
  `plenum silence add --source=${argument(source)} ${
    alarm === undefined ? `--site=${site}` : `--alarm=${argument(alarm)}`
  } --for 4h --reason "…"`;

/** `what`: `{ source, alarm }` or `{ source, site }`. Asks for a reason and a length before anything is silenced. */
export function BeginSilence({ what, name, done }) {
  const [isOpen, setOpen] = useState(false);
  const [reason, setReason] = useState("");
  const [refusal, refuse] = useState("");
  if (needsPassword())
    return html`<${ByCommand} name=${t("silence …")} label=${t("silence {name}", { name })} command=${commandFor(what)} />`;
  if (!isOpen) {
    return html`<button type="button" class="mute" aria-label=${t("silence {name}", { name })} onClick=${() => setOpen(true)}>${t("silence …")}</button>`;
  }
  const close = () => {
    setOpen(false);
    setReason("");
    refuse("");
  };
  const begin = async (minutes) => {
    const why = await order("/api/silences", { ...what, minutes, reason });
    if (why !== "") return refuse(why);
    close();
    done();
  };
  return html`<span class="begin" role="group" aria-label=${t("silence {name}", { name })}>
    <input placeholder=${t("why?")} aria-label=${t("reason")} maxlength=${LONGEST_REASON} value=${reason} autocomplete="off"
      onInput=${(event) => setReason(event.target.value)} />
    ${LENGTHS.map(
      ([minutes, length]) => html`<button type="button" class="mute" disabled=${reason.trim() === ""}
        onClick=${() => begin(minutes)}>${t("for {length}", { length })}</button>`,
    )}
    <button type="button" class="mute" onClick=${close}>${t("cancel")}</button>
    ${refusal !== "" && html`<b class="problem">${refusal}</b>`}
  </span>`;
}

/** Mark in the row of a silenced alarm. */
export function Silenced({ silenced }) {
  return html`<span class="of"><b class="muted">${t("silenced")}</b> ${t("until {time} by {name}: {reason}", { time: at(silenced.to, nowMs()), name: silenced.madeBy, reason: silenced.reason })}</span>`;
}

/** Asks for confirmation before it ends, because active alarms are notified then. */
function EndSilence({ id, done }) {
  if (needsPassword()) return html`<${ByCommand} name=${t("end")} command=${`plenum silence end ${argument(id)}`} />`;
  const end = async () => {
    const why = await order(`/api/silences/${encodeURIComponent(id)}/end`);
    done();
    return why;
  };
  return html`<${Twice} name=${t("end")} again=${t("click again to end")} done=${end} />`;
}

export function Silences({ silences, done }) {
  const rows = silences.data;
  return html`<section class="panel silences">
    <h2>${t("Silences")} <span class="of">${t("no tickets, messages and pages are made of these alarms")}</span></h2>
    <${PasswordHint} command="plenum silence" />
    <${Stale} answer=${silences} />
    ${rows.length === 0 && silences.atMs !== null && html`<p class="quiet">${t("None.")}</p>`}
    <ul class="scroll">${rows.slice(0, MOST_SHOWN).map(
      ({ id, alarms, from, to, reason, madeBy, isActive }) => html`<li key=${id} class=${isActive ? "" : "coming"}>
        <b>${alarms}</b>
        <span class="of">${isActive ? "" : `${t("from {time}", { time: at(from, nowMs()) })} `}${t("until {time}", { time: at(to, nowMs()) })}, ${until(isActive ? to : from, nowMs())} · ${t("by {name}", { name: madeBy })}</span>
        <span class="of">${reason}</span>
        <${EndSilence} id=${id} done=${done} />
      </li>`,
    )}</ul>
    ${rows.length > MOST_SHOWN && html`<p class="quiet">${t("and {count} more", { count: shown(rows.length - MOST_SHOWN) })}</p>`}
  </section>`;
}
