import { ActiveAlarms, AlarmDaysPanel, BeginSilenceForm, SilencesPanel, usePolledAlarms } from "/alarm-panels.mjs";
import { CopyAddress, NotFound, Panel, StaleWarning, Table, unknownMark, ViewTitle } from "/components.mjs";
import { countText, valueText } from "/formats.mjs";
import { html } from "/htm.mjs";
import { usePolledData } from "/status-api.mjs";
import { TagsPanel, tagListQuery } from "/tags-panel.mjs";
import { amendViewQuery, viewAddress } from "/view-url.mjs";

const SITE_POLL_MS = 10_000;
const ALARMS_POLL_MS = 4000;

export function View({ parts: [source = "", id = ""], query, report, during }) {
  const response = usePolledData(`/api/site?${new URLSearchParams({ source, id })}`, null, SITE_POLL_MS);
  const priority = query.get("priority");
  const alarms = usePolledAlarms({ source, id }, priority, ALARMS_POLL_MS);
  const silences = usePolledData(`/api/silences?${new URLSearchParams({ source, site: id })}`, [], SITE_POLL_MS);
  const reloadSilences = () => {
    silences.again();
    alarms.again();
  };
  const site = response.data;
  if (site === null || response.missing) return html`<${NotFound} answer=${response} what="site" />`;
  const countTexts = [
    countText(site.tags.all, "tag"),
    countText(site.gateways.length, "gateway"),
    countText(site.systems.length, "system"),
  ];
  return html`
    <${ViewTitle} name=${site.displayName} above=${[["Site", null]]}>
      <p>${countTexts.join(" · ")}
        ${site.tags.bad > 0 && html` · <b class="warn">${valueText(site.tags.bad)} unreadable</b>`}</p>
      <p class="of">site ${id} · <a href=${viewAddress("source", [source])}>${source}</a> <${CopyAddress} />
        <${BeginSilenceForm} name=${site.displayName} what=${{ source, site: site.id }} done=${reloadSilences} /></p>
    </${ViewTitle}>
    <${StaleWarning} answer=${response} />
    <div class="columns">
      <div>
        <${ActiveAlarms} alarms=${during(alarms)} sources=${report.sources} site=${{ source, id: site.id }} silenced=${reloadSilences}
          priority=${priority} choose=${(newPriority) => amendViewQuery({ priority: newPriority })} />
        <${TagsPanel} query=${{ ...tagListQuery(query), source, site: id }} amend=${amendViewQuery} />
      </div>
      <div>
        <${AlarmDaysPanel} bars=${site.raised} />
        <${SilencesPanel} silences=${during(silences)} done=${reloadSilences} />
        <${GatewaysPanel} gateways=${site.gateways} />
        <${SystemsPanel} systems=${site.systems} />
      </div>
    </div>`;
}

const GATEWAY_STATE_LABELS = [
  [false, "offline", "bad"],
  [null, "unknown state", "warn"],
  [true, "online", "good"],
];

function GatewaysPanel({ gateways }) {
  const rows = GATEWAY_STATE_LABELS.flatMap(([state, label, mood]) =>
    gateways
      .filter(({ online }) => online === state)
      .map(
        ({ id, displayName }) =>
          html`<tr key=${id}><td>${displayName} <span class="of">${id}</span></td><td class="n"><b class=${mood}>${label}</b></td></tr>`,
      ),
  );
  return html`<${Panel} title="Gateways" note=${valueText(gateways.length)}>
    <${Table} kind="listed" rows=${rows} none="None is known." /><//>`;
}

function SystemsPanel({ systems }) {
  const rows = systems.map(
    ({ id, displayName, tags }) =>
      html`<tr key=${id}><td>${displayName}</td><td class="n">${tags === null ? unknownMark() : countText(tags, "tag")}</td></tr>`,
  );
  return html`<${Panel} title="Systems" note=${valueText(systems.length)}>
    <${Table} kind="listed" rows=${rows} none="None is known." scroll="Systems" /><//>`;
}
