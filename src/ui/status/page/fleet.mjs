import { html } from "/htm.mjs";
import { t, valueText } from "/language.mjs";
import { Copy, Head, Missing, Panel, quotedText, Stale, Table } from "/shared-components.mjs";
import { At } from "/worker-clock.mjs";
import { usePolled } from "/worker-requests.mjs";

const EVERY_MS = 2000;
const STATE_LABELS = {
  alive: "works",
  draining: "drained",
  leaving: "is stopping",
  left: "stopped",
  lost: "does not respond",
};

const REASON_LABELS = {
  first: "first holder",
  joined: "a member had less than its share",
  left: "its holder stopped",
  drained: "its holder was drained",
  "lease-ran-out": "its holder did not respond",
  "could-not-start": "its holder could not start it",
  unreachable: "its holder could not reach the service",
};

const reasonWords = (reason) => t(REASON_LABELS[reason] ?? reason);
const titles = (...names) => names.map((name) => [name]);

export function View() {
  const answer = usePolled("/api/fleet", null, EVERY_MS);
  if (answer.data === null) return html`<${Missing} answer=${answer} what="fleet" />`;
  const { self, members, sources, takeovers, database, trouble } = answer.data;
  const unheldCount = sources.filter(({ holder }) => holder === null).length;
  const memberHead = [
    ...titles(t("member"), t("state")),
    [t("sources"), "n"],
    ...titles(t("machine"), t("started"), t("last seen"), t("before maintenance")),
  ];
  const holderRows = sources.map(
    ({ source, holder, since, reason }) => html`<tr key=${source}>
      <td>${source}</td>
      <td class=${holder === null ? "bad" : ""}>${holder ?? t("no member")}</td>
      <td>${since !== null && html`<${At} time=${since} />`}</td>
      <td>${reason !== null && reasonWords(reason)}</td>
    </tr>`,
  );
  const takeoverRows = takeovers.map(
    ({ source, from, to, epoch, at, reason }) => html`<tr key=${`${source} ${epoch}`}>
      <td><${At} time=${at} /></td><td>${source}</td><td>${from ?? "–"}</td><td>${to}</td><td>${reasonWords(reason)}</td>
    </tr>`,
  );
  return html`<${Head} name=${t("Fleet")}>
      <p class="of">${t("members share the sources; each source belongs to one member")}</p>
    </${Head}>
    <${Stale} answer=${answer} />
    ${trouble !== null && html`<p class="problem">${t("The database does not respond; this is from an earlier response.")} ${quotedText(trouble)}</p>`}
    ${unheldCount > 0 && html`<p class="warn">${t("Sources without a member: {count}.", { count: valueText(unheldCount) })}</p>`}
    <${List} title=${t("Members")} head=${memberHead} rows=${members.map((member) => memberRow(member, self))} />
    <${List} title=${t("Sources and their members")} rows=${holderRows}
      head=${titles(t("source"), t("member in charge"), t("since"), t("because"))} />
    <${List} title=${t("Takeovers")} note=${t("newest first")} rows=${takeoverRows}
      head=${titles(t("when"), t("source"), t("from member"), t("to member"), t("because"))} />
    ${database !== null && html`<${Database} database=${database} />`}`;
}

function List({ title, note, head, rows }) {
  return html`<${Panel} title=${title} note=${note}>
    <${Table} kind="listed" head=${head} rows=${rows} none=${t("None yet.")} scroll=${title} /><//>`;
}

function memberRow({ name, state, sources, host, version, page, startedAt, seenAt, isDraining, unable }, self) {
  const command = `plenum fleet ${isDraining ? "undrain" : "drain"} ${name}`;
  const label = html`<b>${name}</b>`;
  const isOpenable = name !== self && /^https?:/.test(page) && state === "alive";
  return html`<tr key=${name}>
    <td>${isOpenable ? html`<a href=${page}>${label}</a>` : label} ${name === self && html`<span class="of">${t("this one")}</span>`}</td>
    <td class=${state === "alive" ? "" : "warn"}>${t(STATE_LABELS[state] ?? state)}${isDraining && state !== "draining" ? `, ${t("drained")}` : ""}
      ${unable.length > 0 && html` <span class="problem">${t("cannot start: {sources}", { sources: unable.join(", ") })}</span>`}</td>
    <td class="n">${valueText(sources)}</td>
    <td>${host} <span class="of">${version}</span></td>
    <td><${At} time=${startedAt} /></td>
    <td><${At} time=${seenAt} /></td>
    <td><code>${command}</code> <${Copy} text=${command} /></td>
  </tr>`;
}

function Database({ database: { name, server, bytes, doubts } }) {
  return html`<${Panel} title=${t("Database")}>
    <p>${name} <span class="of">${server} · ${valueText(Math.round(bytes / 2 ** 20))} MiB</span></p>
    ${doubts.map((doubt) => html`<p class="problem" key=${doubt}>${quotedText(doubt)}</p>`)}
  <//>`;
}
