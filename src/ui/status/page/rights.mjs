import { html, useState } from "/htm.mjs";
import { t } from "/language.mjs";
import { Copy } from "/parts.mjs";

/** Changes that need a password where none is configured: the page then shows the command that does the same. */

let isNeeded = false;

/** Called with each report, before anything is drawn. */
export function setNeedsPassword(isIt) {
  isNeeded = isIt;
}

export const needsPassword = () => isNeeded;

/** An argument of a command for a shell; what the service wrote is quoted, so that it cannot be another command. */
export function argument(text) {
  return /^[\w.:@-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** Says once in a panel what its changes need. */
export function PasswordHint({ command }) {
  if (!isNeeded) return null;
  return html`<p class="quiet hint">${t("Changes here need a password: set status.password in the configuration. Without one, use the command:")} <code>${command}</code></p>`;
}

/** A button in place of one that changes something. */
export function ByCommand({ name, label, command, kind = "mute" }) {
  const [isOpen, setOpen] = useState(false);
  return html`<button type="button" class=${kind} aria-label=${label} aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}>${name}</button>
    ${isOpen && html`<span class="of hint" role="status">${t("This needs a password: set status.password in the configuration, or run this as the user of the worker:")} <code>${command}</code> <${Copy} text=${command} /></span>`}`;
}
