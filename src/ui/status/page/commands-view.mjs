import { NotFound, Panel, StaleWarning, Table, tagAddress, ViewTitle } from "/components.mjs";
import { html } from "/htm.mjs";
import { t, valueText } from "/language.mjs";
import { usePolledData } from "/requests-to-worker.mjs";
import { At } from "/worker-clock.mjs";

const COMMANDS_POLL_MS = 4000;
const MAX_LISTED_COMMANDS = 200;
const STATE_COLOURS = { confirmed: "good", mismatch: "bad", unknown: "warn", expired: "warn", rejected: "warn" };

export function View() {
  const response = usePolledData(`/api/commands?limit=${MAX_LISTED_COMMANDS}`, null, COMMANDS_POLL_MS);
  if (response.data === null) return html`<${NotFound} answer=${response} what="list" />`;
  return html`<${ViewTitle} name=${t("Commands")}><p class="of">${t("requested writes and their results; newest first")}</p></${ViewTitle}>
    <${StaleWarning} answer=${response} />
    <${Panel}><${CommandRows} rows=${response.data} /><//>`;
}

export function CommandRows({ rows, hasTag = true }) {
  const tableHead = [[t("time")], ...(hasTag ? [[t("tag")]] : []), [t("value"), "n"], [t("by")], [t("state")]];
  const commandRows = rows.map(
    ({ id, at, tagId, source, tag, requested, by, state, words }) => html`<tr key=${id}>
      <td class="when"><${At} time=${at} /></td>
      ${hasTag && html`<td>${tagId === null || source === null ? (tag ?? "–") : html`<a href=${tagAddress(source, tagId)}>${tag ?? tagId}</a>`}</td>`}
      <td class="n value">${valueText(requested)}</td>
      <td>${by}</td>
      <td><b class=${STATE_COLOURS[state] ?? ""}>${t(state)}</b> <span class="of" lang="en">${words}</span></td>
    </tr>`,
  );
  return html`<${Table} kind="commands" rows=${commandRows} head=${tableHead} none=${t("None yet.")} />`;
}
