import { html } from "/htm.mjs";
import { t, valueText } from "/language.mjs";
import { Head, Missing, Panel, Stale, Table, tagAddress } from "/shared-components.mjs";
import { At } from "/worker-clock.mjs";
import { usePolled } from "/worker-requests.mjs";

const EVERY_MS = 4000;
const MAX_COMMANDS = 200;
const STATE_CLASSES = { confirmed: "good", mismatch: "bad", unknown: "warn", expired: "warn", rejected: "warn" };

export function View() {
  const answer = usePolled(`/api/commands?limit=${MAX_COMMANDS}`, null, EVERY_MS);
  if (answer.data === null) return html`<${Missing} answer=${answer} what="list" />`;
  return html`<${Head} name=${t("Commands")}><p class="of">${t("requested writes and their results; newest first")}</p></${Head}>
    <${Stale} answer=${answer} />
    <${Panel}><${CommandRows} rows=${answer.data} /><//>`;
}

export function CommandRows({ rows, hasTag = true }) {
  const head = [[t("time")], ...(hasTag ? [[t("tag")]] : []), [t("value"), "n"], [t("by")], [t("state")]];
  const commands = rows.map(
    ({ id, at, tagId, source, tag, requested, by, state, words }) => html`<tr key=${id}>
      <td class="when"><${At} time=${at} /></td>
      ${hasTag && html`<td>${tagId === null || source === null ? (tag ?? "–") : html`<a href=${tagAddress(source, tagId)}>${tag ?? tagId}</a>`}</td>`}
      <td class="n value">${valueText(requested)}</td>
      <td>${by}</td>
      <td><b class=${STATE_CLASSES[state] ?? ""}>${t(state)}</b> <span class="of" lang="en">${words}</span></td>
    </tr>`,
  );
  return html`<${Table} kind="commands" rows=${commands} head=${head} none=${t("None yet.")} />`;
}
