import { amend, to } from "/address.mjs";
import { Alarms, useAlarms } from "/alarms.mjs";
import { usePolled } from "/asking.mjs";
import { DayBars } from "/bars.mjs";
import { html } from "/htm.mjs";
import { t } from "/language.mjs";
import { CopyAddress, Head, Missing, Stale, unknown } from "/parts.mjs";
import { BeginSilence, Silences } from "/silences.mjs";
import { Tags, wishOf } from "/tags.mjs";
import { counted, shown } from "/words.mjs";

/** One site: its alarms, gateways, systems and tags. */

const EVERY_MS = 10_000;
const LISTS_MS = 4000;

export function View({ parts: [source = "", id = ""], query, report, said }) {
  const answer = usePolled(`/api/site?${new URLSearchParams({ source, id })}`, null, EVERY_MS);
  const alarms = useAlarms({ source, id }, query.get("priority"), LISTS_MS);
  const silences = usePolled(`/api/silences?${new URLSearchParams({ source, site: id })}`, [], EVERY_MS);
  const silenced = () => {
    silences.again();
    alarms.again();
  };
  const site = answer.data;
  if (site === null || answer.missing) return html`<${Missing} answer=${answer} what="site" />`;
  const wish = { ...wishOf(query), source, site: id };
  return html`
    <${Head} name=${site.displayName} above=${[[t("Site"), null]]}>
      <p>${[counted(site.tags.all, "tag"), counted(site.gateways.length, "gateway"), counted(site.systems.length, "system")].join(" · ")}
        ${site.tags.bad > 0 && html` · <b class="warn">${t("{count} unreadable", { count: shown(site.tags.bad) })}</b>`}</p>
      <p class="of">${t("site {id}", { id })} · <a href=${to("source", [source])}>${source}</a> <${CopyAddress} />
        <${BeginSilence} name=${site.displayName} what=${{ source, site: site.id }} done=${silenced} /></p>
    </${Head}>
    <${Stale} answer=${answer} />
    <div class="columns">
      <div>
        <${Alarms} alarms=${said(alarms)} sources=${report.sources} site=${{ source, id: site.id }} silenced=${silenced}
          priority=${query.get("priority")} choose=${(priority) => amend({ priority })} />
        <${Tags} query=${wish} amend=${amend} />
      </div>
      <div>
        <section class="panel days"><h2>${t("Alarms by day")} <span class="of">${t("raised in the last 30 days")}</span></h2><${DayBars} bars=${site.raised} /></section>
        <${Silences} silences=${said(silences)} done=${silenced} />
        <${Gateways} gateways=${site.gateways} />
        <${Systems} systems=${site.systems} />
      </div>
    </div>`;
}

const STATES = [
  [false, "offline", "bad"],
  [null, "does not say", "warn"],
  [true, "online", "good"],
];

/** Offline gateways first. */
function Gateways({ gateways }) {
  const rows = STATES.flatMap(([online, words, mood]) =>
    gateways.filter((each) => each.online === online).map((each) => ({ ...each, words, mood })),
  );
  return html`<section class="panel"><h2>${t("Gateways")} <span class="of">${shown(gateways.length)}</span></h2>
    ${rows.length === 0 && html`<p class="quiet">${t("None is known.")}</p>`}
    ${
      rows.length > 0 &&
      html`<table class="listed"><tbody>${rows.map(
        (each) =>
          html`<tr key=${each.id}><td>${each.displayName} <span class="of">${each.id}</span></td><td class="n"><b class=${each.mood}>${t(each.words)}</b></td></tr>`,
      )}</tbody></table>`
    }</section>`;
}

function Systems({ systems }) {
  return html`<section class="panel"><h2>${t("Systems")} <span class="of">${shown(systems.length)}</span></h2>
    ${systems.length === 0 && html`<p class="quiet">${t("None is known.")}</p>`}
    ${
      systems.length > 0 &&
      html`<div class="scroll" tabindex="0" role="region" aria-label=${t("Systems")}><table class="listed"><tbody>${systems.map(
        (each) =>
          html`<tr key=${each.id}><td>${each.displayName}</td><td class="n">${each.tags === null ? unknown() : counted(each.tags, "tag")}</td></tr>`,
      )}</tbody></table></div>`
    }</section>`;
}
