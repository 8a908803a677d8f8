import { At } from "/clock.mjs";
import { html } from "/htm.mjs";
import { t } from "/language.mjs";
import { tagAddress } from "/parts.mjs";
import { shown } from "/words.mjs";

/** How a command stands: what was proved, what was not, what is under way. */
const MOODS = {
  confirmed: "good",
  accepted: "",
  sending: "",
  mismatch: "bad",
  unknown: "warn",
  expired: "warn",
  rejected: "warn",
};

export function CommandRows({ rows, hasTag = true }) {
  if (rows.length === 0) return html`<p class="quiet">${t("None yet.")}</p>`;
  return html`<table class="commands"><thead><tr><th>${t("time")}</th>${hasTag && html`<th>${t("tag")}</th>`}<th class="n">${t("value")}</th><th>${t("by")}</th><th>${t("state")}</th></tr></thead>
    <tbody>${rows.map(
      (row) => html`<tr key=${row.id}>
        <td class="when"><${At} time=${row.at} /></td>
        ${hasTag && html`<td>${row.tagId === null || row.source === null ? (row.tag ?? "–") : html`<a href=${tagAddress(row.source, row.tagId)}>${row.tag ?? row.tagId}</a>`}</td>`}
        <td class="n value">${shown(row.requested)}</td>
        <td>${row.by}</td>
        <td><b class=${MOODS[row.state] ?? ""}>${t(row.state)}</b> <span class="of" lang="en">${row.words}</span></td>
      </tr>`,
    )}</tbody></table>`;
}
