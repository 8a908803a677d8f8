import { unreliableCountReason } from "/formats.mjs";
import { html, useEffect, useRef, useState } from "/htm.mjs";
import { viewAddress } from "/view-url.mjs";
import { nowMs } from "/worker-clock.mjs";

/** Components that several views use. Texts are never parsed as HTML. */

export function Panel({ title, note = null, extra = null, kind = "", level = "h2", label, children }) {
  return html`<section class=${`panel ${kind}`} aria-label=${label}>
    ${title !== undefined && html`<${level}>${title} ${note !== null && html`<span class="of">${note}</span>`} ${extra}</${level}>`}
    ${children}</section>`;
}

/** Shows a table. `head`: pairs of title (or null) and CSS class. `none`: text in place of an empty table. */
export function Table({ rows, head, none, kind, scroll }) {
  if (rows.length === 0) return html`<p class="quiet">${none}</p>`;
  const tableElement = html`<table class=${kind}>
    ${head !== undefined && html`<thead><tr>${head.map(([title, columnClass = ""]) => (title === null ? html`<td></td>` : html`<th class=${columnClass}>${title}</th>`))}</tr></thead>`}
    <tbody>${rows}</tbody></table>`;
  if (scroll === undefined) return tableElement;
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${scroll}>${tableElement}</div>`;
}

export function ChoiceButtons({ label, options, chosen, choose }) {
  return html`<span class="chips" role="group" aria-label=${label}>${options.map(
    ([value, optionText]) =>
      html`<button type="button" class="chip" aria-pressed=${value === chosen} onClick=${() => choose(value)}>${optionText}</button>`,
  )}</span>`;
}

export const unknownMark = () => html`<abbr title="not known">?</abbr>`;
export const priorityMark = (priority, text = priority) => html`<span class=${`priority p${priority}`}>${text}</span>`;

export function PriorityCounts({ counts }) {
  if (counts === null) return html`<span class="of">unknown</span>`;
  return Object.entries(counts)
    .toSorted(([a], [b]) => (a < b ? -1 : 1))
    .map(([priority, count]) => priorityMark(priority, `${priority} ${count}`));
}

export function StaleWarning({ answer }) {
  if (answer.failed === null) return null;
  const staleReason =
    answer.atMs === null
      ? "The worker has not sent this yet."
      : "The worker did not respond; this is from an earlier response.";
  return html`<p class="problem">${staleReason} ${answer.failed}</p>`;
}

export function UnreliableCountWarning({ reading, what }) {
  const unreliableReason = unreliableCountReason(reading, what, nowMs());
  if (unreliableReason === null) return null;
  return html`<p class="warn">Not all ${what} are known: ${unreliableReason}.</p>`;
}

export function CopyButton({ text, name = "copy" }) {
  const [copyResult, setCopyResult] = useState("");
  const copyText = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setCopyResult("copied");
    } catch {
      setCopyResult("cannot be copied here");
    }
    setTimeout(setCopyResult, 2000, "");
  };
  return html`<button type="button" class="mute" onClick=${copyText} aria-live="polite">${copyResult || name}</button>`;
}

export const CopyAddress = () => html`<${CopyButton} text=${location.href} name="copy this address" />`;

export function ViewTitle({ above = [], name, children }) {
  const headingElement = useRef(null);
  useEffect(() => headingElement.current.focus({ preventScroll: true }), []);
  return html`<div class="head">
    <p class="path"><a href="#/">Overview</a>${above.map(
      ([linkText, href]) => html` › ${href === null ? linkText : html`<a href=${href}>${linkText}</a>`}`,
    )}</p>
    <h2 tabindex="-1" ref=${headingElement}>${name}</h2>
    <div class="figures">${children}</div>
  </div>`;
}

export function NotFound({ answer, what }) {
  if (answer.missing && answer.holder) {
    const { name, page } = answer.holder;
    return html`<p class="panel empty">Another member of the fleet has this now: ${name}. ${
      page === "" ? html`<a href="#/fleet">Fleet</a>` : html`<a href=${`${page}/${location.hash}`}>${page}</a>`
    }</p>`;
  }
  if (answer.missing) return html`<p class="panel empty">There is no such ${what}. <a href="#/">Overview</a></p>`;
  if (answer.failed !== null) return html`<${StaleWarning} answer=${answer} />`;
  return html`<p class="loading">Loading …</p>`;
}

export const tagAddress = (source, id, query) => viewAddress("tag", [source, id], query);
export const siteAddress = (source, id) => viewAddress("site", [source, id]);
export const alarmAddress = (source, id, episode = null) =>
  viewAddress("alarm", episode === null ? [source, id] : [source, id, episode]);

/**
 * Button that asks for confirmation. `done` performs the change and returns the reason of a failure. `command`: shell
 * command for the same change, which the button shows instead while no password is configured.
 */
export function ConfirmButton({ name, again, done, command, kind = "mute" }) {
  const [isConfirming, setConfirming] = useState(false);
  const [failure, setFailure] = useState("");
  if (command !== undefined && isPasswordNeeded)
    return html`<${CommandHint} kind=${kind} name=${name} command=${command} />`;
  const confirmOrRun = async () => {
    if (!isConfirming) return setConfirming(true);
    setConfirming(false);
    setFailure((await done()) ?? "");
  };
  return html`<button type="button" class=${kind} onClick=${confirmOrRun} onBlur=${() => setConfirming(false)}>${isConfirming ? again : name}</button>
    ${failure !== "" && html` <b class="problem" role="alert">${failure}</b>`}`;
}

/** True if no password is configured: the page then shows commands instead of buttons. */
let isPasswordNeeded = false;

export function setNeedsPassword(isNeeded) {
  isPasswordNeeded = isNeeded;
}

export const needsPassword = () => isPasswordNeeded;

/** Quotes a text of the service, so that a shell cannot run a part of it as a command. */
export const shellArgument = (text) => (/^[\w.:@-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

export function PasswordHint({ command }) {
  if (!isPasswordNeeded) return null;
  return html`<p class="quiet hint">Changes here need a password: set status.password in the configuration. Without one, use the command: <code>${command}</code></p>`;
}

export function CommandHint({ name, label, command, kind = "mute" }) {
  const [isOpen, setOpen] = useState(false);
  return html`<button type="button" class=${kind} aria-label=${label} aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}>${name}</button>
    ${isOpen && html`<span class="of hint" role="status">This needs a password: set status.password in the configuration, or run this as the user of the worker: <code>${command}</code> <${CopyButton} text=${command} /></span>`}`;
}

/**
 * Keeps rows in their order while the pointer or the focus is on them; only their contents change. `hasMoved`: a newer
 * order exists; `renew` applies it. A new `question` (request path) starts a new list. `version`: number of the order.
 */
export function useStableRowOrder(rows, keyOf, question) {
  const frozenBy = useRef({ pointer: false, focus: false });
  const lastRowOrder = useRef({ rows: [], question: null, version: 0 });
  const [, redraw] = useState(0);
  const redrawRows = () => redraw((n) => n + 1);
  const hasOtherRowOrder = (a, b) => a.length !== b.length || a.some((row, n) => keyOf(row) !== keyOf(b[n]));
  const isFrozen = frozenBy.current.pointer || frozenBy.current.focus;
  const keepsOrder = isFrozen && lastRowOrder.current.question === question && lastRowOrder.current.rows.length > 0;
  const rowsByKey = new Map(rows.map((row) => [keyOf(row), row]));
  const orderedRows = keepsOrder ? lastRowOrder.current.rows.map((row) => rowsByKey.get(keyOf(row)) ?? row) : rows;
  const version = lastRowOrder.current.version + (hasOtherRowOrder(orderedRows, lastRowOrder.current.rows) ? 1 : 0);
  lastRowOrder.current = { rows: orderedRows, question, version };
  const setFrozen = (reason, value) => () => {
    frozenBy.current[reason] = value;
    if (!value) redrawRows();
  };
  return {
    rows: orderedRows,
    hasMoved: keepsOrder && hasOtherRowOrder(orderedRows, rows),
    version,
    renew() {
      lastRowOrder.current = { ...lastRowOrder.current, rows: [] };
      redrawRows();
    },
    hold: {
      onPointerEnter: setFrozen("pointer", true),
      onPointerLeave: setFrozen("pointer", false),
      // Lower case, because Preact handles these two events only under lower-case names.
      onfocusin: setFrozen("focus", true),
      onfocusout: setFrozen("focus", false),
    },
  };
}

export function NewOrderButton({ order }) {
  return html`<span class="moved" role="status">${order.hasMoved && html`<button type="button" class="only" onClick=${order.renew}>new order</button>`}</span>`;
}
