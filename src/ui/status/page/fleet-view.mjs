import { CopyButton, NotFound, Panel, quotedText, StaleWarning, Table, ViewTitle } from "/components.mjs";
import { html } from "/htm.mjs";
import { t, valueText } from "/language.mjs";
import { usePolledData } from "/requests-to-worker.mjs";
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

const takeoverReasonText = (reason) => t(TAKEOVER_REASON_LABELS[reason] ?? reason);
const columnTitles = (...names) => names.map((name) => [name]);

export function View() {
  const response = usePolledData("/api/fleet", null, FLEET_POLL_MS);
  if (response.data === null) return html`<${NotFound} answer=${response} what="fleet" />`;
  const { self, members, sources, takeovers, database, trouble } = response.data;
  const unheldSourceCount = sources.filter(({ holder }) => holder === null).length;
  const memberTableHead = [
    ...columnTitles(t("member"), t("state")),
    [t("sources"), "n"],
    ...columnTitles(t("machine"), t("started"), t("last seen"), t("before maintenance")),
  ];
  const holderRows = sources.map(
    ({ source, holder, since, reason }) => html`<tr key=${source}>
      <td>${source}</td>
      <td class=${holder === null ? "bad" : ""}>${holder ?? t("no member")}</td>
      <td>${since !== null && html`<${At} time=${since} />`}</td>
      <td>${reason !== null && takeoverReasonText(reason)}</td>
    </tr>`,
  );
  const takeoverRows = takeovers.map(
    ({ source, from, to, epoch, at, reason }) => html`<tr key=${`${source} ${epoch}`}>
      <td><${At} time=${at} /></td><td>${source}</td><td>${from ?? "–"}</td><td>${to}</td><td>${takeoverReasonText(reason)}</td>
    </tr>`,
  );
  return html`<${ViewTitle} name=${t("Fleet")}>
      <p class="of">${t("members share the sources; each source belongs to one member")}</p>
    </${ViewTitle}>
    <${StaleWarning} answer=${response} />
    ${trouble !== null && html`<p class="problem">${t("The database does not respond; this is from an earlier response.")} ${quotedText(trouble)}</p>`}
    ${unheldSourceCount > 0 && html`<p class="warn">${t("Sources without a member: {count}.", { count: valueText(unheldSourceCount) })}</p>`}
    <${FleetTable} title=${t("Members")} head=${memberTableHead} rows=${members.map((member) => memberRow(member, self))} />
    <${FleetTable} title=${t("Sources and their members")} rows=${holderRows}
      head=${columnTitles(t("source"), t("member in charge"), t("since"), t("because"))} />
    <${FleetTable} title=${t("Takeovers")} note=${t("newest first")} rows=${takeoverRows}
      head=${columnTitles(t("when"), t("source"), t("from member"), t("to member"), t("because"))} />
    ${database !== null && html`<${FleetDatabase} database=${database} />`}`;
}

function FleetTable({ title, note, head, rows }) {
  return html`<${Panel} title=${title} note=${note}>
    <${Table} kind="listed" head=${head} rows=${rows} none=${t("None yet.")} scroll=${title} /><//>`;
}

function memberRow({ name, state, sources, host, version, page, startedAt, seenAt, isDraining, unable }, self) {
  const drainCommand = `plenum fleet ${isDraining ? "undrain" : "drain"} ${name}`;
  const memberName = html`<b>${name}</b>`;
  const isPageOpenable = name !== self && /^https?:/.test(page) && state === "alive";
  return html`<tr key=${name}>
    <td>${isPageOpenable ? html`<a href=${page}>${memberName}</a>` : memberName} ${name === self && html`<span class="of">${t("this one")}</span>`}</td>
    <td class=${state === "alive" ? "" : "warn"}>${t(MEMBER_STATE_LABELS[state] ?? state)}${isDraining && state !== "draining" ? `, ${t("drained")}` : ""}
      ${unable.length > 0 && html` <span class="problem">${t("cannot start: {sources}", { sources: unable.join(", ") })}</span>`}</td>
    <td class="n">${valueText(sources)}</td>
    <td>${host} <span class="of">${version}</span></td>
    <td><${At} time=${startedAt} /></td>
    <td><${At} time=${seenAt} /></td>
    <td><code>${drainCommand}</code> <${CopyButton} text=${drainCommand} /></td>
  </tr>`;
}

function FleetDatabase({ database: { name, server, bytes, doubts } }) {
  return html`<${Panel} title=${t("Database")}>
    <p>${name} <span class="of">${server} · ${valueText(Math.round(bytes / 2 ** 20))} MiB</span></p>
    ${doubts.map((warning) => html`<p class="problem" key=${warning}>${quotedText(warning)}</p>`)}
  <//>`;
}
