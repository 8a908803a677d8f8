import { AlarmDays, Alarms, BeginSilence, Silences, useAlarms } from "/alarms.mjs";
import { html } from "/htm.mjs";
import { countText, t, valueText } from "/language.mjs";
import { CopyAddress, Head, Missing, Panel, Stale, Table, unknownMark } from "/shared-components.mjs";
import { listQuery, Tags } from "/tags.mjs";
import { amend, viewAddress } from "/view-address.mjs";
import { usePolled } from "/worker-requests.mjs";

const EVERY_MS = 10_000;
const LISTS_MS = 4000;

export function View({ parts: [source = "", id = ""], query, report, during }) {
  const answer = usePolled(`/api/site?${new URLSearchParams({ source, id })}`, null, EVERY_MS);
  const priority = query.get("priority");
  const alarms = useAlarms({ source, id }, priority, LISTS_MS);
  const silences = usePolled(`/api/silences?${new URLSearchParams({ source, site: id })}`, [], EVERY_MS);
  const reloadSilences = () => {
    silences.again();
    alarms.again();
  };
  const site = answer.data;
  if (site === null || answer.missing) return html`<${Missing} answer=${answer} what="site" />`;
  const counts = [
    countText(site.tags.all, "tag"),
    countText(site.gateways.length, "gateway"),
    countText(site.systems.length, "system"),
  ];
  return html`
    <${Head} name=${site.displayName} above=${[[t("Site"), null]]}>
      <p>${counts.join(" · ")}
        ${site.tags.bad > 0 && html` · <b class="warn">${t("{count} unreadable", { count: valueText(site.tags.bad) })}</b>`}</p>
      <p class="of">${t("site {id}", { id })} · <a href=${viewAddress("source", [source])}>${source}</a> <${CopyAddress} />
        <${BeginSilence} name=${site.displayName} what=${{ source, site: site.id }} done=${reloadSilences} /></p>
    </${Head}>
    <${Stale} answer=${answer} />
    <div class="columns">
      <div>
        <${Alarms} alarms=${during(alarms)} sources=${report.sources} site=${{ source, id: site.id }} silenced=${reloadSilences}
          priority=${priority} choose=${(wanted) => amend({ priority: wanted })} />
        <${Tags} query=${{ ...listQuery(query), source, site: id }} amend=${amend} />
      </div>
      <div>
        <${AlarmDays} bars=${site.raised} />
        <${Silences} silences=${during(silences)} done=${reloadSilences} />
        <${Gateways} gateways=${site.gateways} />
        <${Systems} systems=${site.systems} />
      </div>
    </div>`;
}

const GATEWAY_STATES = [
  [false, "offline", "bad"],
  [null, "unknown state", "warn"],
  [true, "online", "good"],
];

function Gateways({ gateways }) {
  const rows = GATEWAY_STATES.flatMap(([state, words, mood]) =>
    gateways
      .filter(({ online }) => online === state)
      .map(
        ({ id, displayName }) =>
          html`<tr key=${id}><td>${displayName} <span class="of">${id}</span></td><td class="n"><b class=${mood}>${t(words)}</b></td></tr>`,
      ),
  );
  return html`<${Panel} title=${t("Gateways")} note=${valueText(gateways.length)}>
    <${Table} kind="listed" rows=${rows} none=${t("None is known.")} /><//>`;
}

function Systems({ systems }) {
  const rows = systems.map(
    ({ id, displayName, tags }) =>
      html`<tr key=${id}><td>${displayName}</td><td class="n">${tags === null ? unknownMark() : countText(tags, "tag")}</td></tr>`,
  );
  return html`<${Panel} title=${t("Systems")} note=${valueText(systems.length)}>
    <${Table} kind="listed" rows=${rows} none=${t("None is known.")} scroll=${t("Systems")} /><//>`;
}
