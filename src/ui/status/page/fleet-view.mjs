import { CopyButton, NotFound, Panel, StaleWarning, Table, ViewTitle } from "/components.mjs";
import { valueText } from "/formats.mjs";
import { html } from "/htm.mjs";
import { usePolledData } from "/status-api.mjs";
import { At } from "/worker-clock.mjs";

const FLEET_POLL_MS = 2000;
const MEMBER_STATE_LABELS = {
  alive: "works",
  draining: "drained",
  leaving: "is stopping",
  left: "stopped",
  lost: "does not respond",
};

const TAKEOVER_REASON_LABELS = {
  first: "first holder",
  joined: "a member had less than its share",
  left: "its holder stopped",
  drained: "its holder was drained",
  "lease-ran-out": "its holder did not respond",
  "could-not-start": "its holder could not start it",
  unreachable: "its holder could not reach the service",
};

const takeoverReasonText = (reason) => TAKEOVER_REASON_LABELS[reason] ?? reason;
const columnTitles = (...names) => names.map((name) => [name]);

export function View() {
  const response = usePolledData("/api/fleet", null, FLEET_POLL_MS);
  if (response.data === null) return html`<${NotFound} answer=${response} what="fleet" />`;
  const { self, members, sources, takeovers, database, trouble } = response.data;
  const unheldSourceCount = sources.filter(({ holder }) => holder === null).length;
  const memberTableHead = [
    ...columnTitles("member", "state"),
    ["sources", "n"],
    ...columnTitles("machine", "started", "last seen", "before maintenance"),
  ];
  const holderRows = sources.map(
    ({ source, holder, since, reason }) => html`<tr key=${source}>
      <td>${source}</td>
      <td class=${holder === null ? "bad" : ""}>${holder ?? "no member"}</td>
      <td>${since !== null && html`<${At} time=${since} />`}</td>
      <td>${reason !== null && takeoverReasonText(reason)}</td>
    </tr>`,
  );
  const takeoverRows = takeovers.map(
    ({ source, from, to, epoch, at, reason }) => html`<tr key=${`${source} ${epoch}`}>
      <td><${At} time=${at} /></td><td>${source}</td><td>${from ?? "–"}</td><td>${to}</td><td>${takeoverReasonText(reason)}</td>
    </tr>`,
  );
  return html`<${ViewTitle} name="Fleet">
      <p class="of">members share the sources; each source belongs to one member</p>
    </${ViewTitle}>
    <${StaleWarning} answer=${response} />
    ${trouble !== null && html`<p class="problem">The database does not respond; this is from an earlier response. ${trouble}</p>`}
    ${unheldSourceCount > 0 && html`<p class="warn">Sources without a member: ${valueText(unheldSourceCount)}.</p>`}
    <${FleetTable} title="Members" head=${memberTableHead} rows=${members.map((member) => memberRow(member, self))} />
    <${FleetTable} title="Sources and their members" rows=${holderRows}
      head=${columnTitles("source", "member in charge", "since", "because")} />
    <${FleetTable} title="Takeovers" note="newest first" rows=${takeoverRows}
      head=${columnTitles("when", "source", "from member", "to member", "because")} />
    ${database !== null && html`<${FleetDatabase} database=${database} />`}`;
}

function FleetTable({ title, note, head, rows }) {
  return html`<${Panel} title=${title} note=${note}>
    <${Table} kind="listed" head=${head} rows=${rows} none="None yet." scroll=${title} /><//>`;
}

function memberRow({ name, state, sources, host, version, page, startedAt, seenAt, isDraining, unable }, self) {
  const drainCommand = `plenum fleet ${isDraining ? "undrain" : "drain"} ${name}`;
  const memberName = html`<b>${name}</b>`;
  const isPageOpenable = name !== self && /^https?:/.test(page) && state === "alive";
  return html`<tr key=${name}>
    <td>${isPageOpenable ? html`<a href=${page}>${memberName}</a>` : memberName} ${name === self && html`<span class="of">this one</span>`}</td>
    <td class=${state === "alive" ? "" : "warn"}>${MEMBER_STATE_LABELS[state] ?? state}${isDraining && state !== "draining" ? ", drained" : ""}
      ${unable.length > 0 && html` <span class="problem">cannot start: ${unable.join(", ")}</span>`}</td>
    <td class="n">${valueText(sources)}</td>
    <td>${host} <span class="of">${version}</span></td>
    <td><${At} time=${startedAt} /></td>
    <td><${At} time=${seenAt} /></td>
    <td><code>${drainCommand}</code> <${CopyButton} text=${drainCommand} /></td>
  </tr>`;
}

function FleetDatabase({ database: { name, server, bytes, doubts } }) {
  return html`<${Panel} title="Database">
    <p>${name} <span class="of">${server} · ${valueText(Math.round(bytes / 2 ** 20))} MiB</span></p>
    ${doubts.map((warning) => html`<p class="problem" key=${warning}>${warning}</p>`)}
  <//>`;
}
