import { html, useState } from "/htm.mjs";
import { order } from "/order.mjs";
import { at, until } from "/words.mjs";

/** Agreed times in which people are not told of alarms: what there is, beginning one and ending one. */

const LENGTHS = [
  [60, "1 h"],
  [240, "4 h"],
  [1440, "1 d"],
];
/** As many characters as the worker takes. */
const LONGEST_REASON = 500;
const MOST_SHOWN = 100;

/** `what`: `{ source, alarm }` or `{ source, site }`. Asks for a reason and a length before anything is silenced. */
export function BeginSilence({ what, name, done }) {
  const [isOpen, setOpen] = useState(false);
  const [reason, setReason] = useState("");
  const [refusal, refuse] = useState("");
  if (!isOpen) {
    return html`<button type="button" class="mute" aria-label=${`silence ${name}`} onClick=${() => setOpen(true)}>silence …</button>`;
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
  return html`<span class="begin" role="group" aria-label=${`silence ${name}`}>
    <input placeholder="why?" aria-label="reason" maxlength=${LONGEST_REASON} value=${reason} autocomplete="off"
      onInput=${(event) => setReason(event.target.value)} />
    ${LENGTHS.map(
      ([minutes, length]) => html`<button type="button" class="mute" disabled=${reason.trim() === ""}
        onClick=${() => begin(minutes)}>for ${length}</button>`,
    )}
    <button type="button" class="mute" onClick=${close}>cancel</button>
    ${refusal !== "" && html`<b class="problem">${refusal}</b>`}
  </span>`;
}

/** What stands in the row of an alarm that people are not told of. */
export function Silenced({ silenced, now }) {
  return html`<span class="of"><b class="muted">silenced</b> until ${at(silenced.to, now)} by ${silenced.madeBy}: ${silenced.reason}</span>`;
}

/** Asks once more before it ends, because what is active is told to people then. */
function EndSilence({ id, done }) {
  const [asked, ask] = useState(false);
  const [refusal, refuse] = useState("");
  const end = async () => {
    if (!asked) return ask(true);
    const why = await order(`/api/silences/${encodeURIComponent(id)}/end`);
    refuse(why);
    done();
  };
  return html`<button type="button" class="mute" onClick=${end} onBlur=${() => ask(false)}>
    ${asked ? "click again to end" : "end"}</button> ${refusal !== "" && html`<b class="problem">${refusal}</b>`}`;
}

export function Silences({ silences, done, now }) {
  const rows = silences.data;
  return html`<section class="panel silences">
    <h2>Silences <span class="of">no tickets, messages and pages are made of these alarms</span></h2>
    ${silences.failed !== null && html`<p class="problem">The worker did not answer this. ${silences.failed}</p>`}
    ${rows.length === 0 && silences.atMs !== null && html`<p class="quiet">None.</p>`}
    <ul class="scroll">${rows.slice(0, MOST_SHOWN).map(
      ({
        id,
        alarms,
        from,
        to,
        reason,
        madeBy,
        isActive,
      }) => html`<li key=${id} class=${isActive ? "" : "coming"}>
        <b>${alarms}</b>
        <span class="of">${isActive ? "" : `from ${at(from, now)} `}until ${at(to, now)}, ${until(isActive ? to : from, now)} · by ${madeBy}</span>
        <span class="of">${reason}</span>
        <${EndSilence} id=${id} done=${done} />
      </li>`,
    )}</ul>
    ${rows.length > MOST_SHOWN && html`<p class="quiet">and ${rows.length - MOST_SHOWN} more</p>`}
  </section>`;
}
