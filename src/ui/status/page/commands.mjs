import { usePolled } from "/asking.mjs";
import { CommandRows } from "/command-rows.mjs";
import { html } from "/htm.mjs";
import { t } from "/language.mjs";
import { Head, Missing, Stale } from "/parts.mjs";

/** Write requests and their results. */

const EVERY_MS = 4000;
const MOST_SHOWN = 200;

export function View() {
  const answer = usePolled(`/api/commands?limit=${MOST_SHOWN}`, null, EVERY_MS);
  if (answer.data === null) return html`<${Missing} answer=${answer} what="list" />`;
  return html`<${Head} name=${t("Commands")}><p class="of">${t("requested writes and their results; newest first")}</p></${Head}>
    <${Stale} answer=${answer} />
    <section class="panel"><${CommandRows} rows=${answer.data} /></section>`;
}
