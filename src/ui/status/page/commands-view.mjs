import { NotFound, Panel, StaleWarning, Table, tagAddress, ViewTitle } from "/components.mjs";
import { valueText } from "/formats.mjs";
import { html } from "/htm.mjs";
import { usePolledData } from "/status-api.mjs";
import { At } from "/worker-clock.mjs";

const COMMANDS_POLL_MS = 4000;
const MAX_LISTED_COMMANDS = 200;
const STATE_COLOURS = { confirmed: "good", mismatch: "bad", unknown: "warn", expired: "warn", rejected: "warn" };

export function View() {
  const response = usePolledData(`/api/commands?limit=${MAX_LISTED_COMMANDS}`, null, COMMANDS_POLL_MS);
  if (response.data === null) return html`<${NotFound} answer=${response} what="list" />`;
  return html`<${ViewTitle} name="Commands"><p class="of">requested writes and their results; newest first</p></${ViewTitle}>
    <${StaleWarning} answer=${response} />
    <${Panel}><${CommandRows} rows=${response.data} /><//>`;
}

export function CommandRows({ rows, hasTag = true }) {
  const tableHead = [["time"], ...(hasTag ? [["tag"]] : []), ["value", "n"], ["by"], ["state"]];
  const commandRows = rows.map(
    ({ id, at, tagId, source, tag, requested, by, state, words }) => html`<tr key=${id}>
      <td class="when"><${At} time=${at} /></td>
      ${hasTag && html`<td>${tagId === null || source === null ? (tag ?? "–") : html`<a href=${tagAddress(source, tagId)}>${tag ?? tagId}</a>`}</td>`}
      <td class="n value">${valueText(requested)}</td>
      <td>${by}</td>
      <td><b class=${STATE_COLOURS[state] ?? ""}>${state}</b> <span class="of">${words}</span></td>
    </tr>`,
  );
  return html`<${Table} kind="commands" rows=${commandRows} head=${tableHead} none="None yet." />`;
}
