import { usePolled } from "/asking.mjs";
import { At } from "/clock.mjs";
import { html } from "/htm.mjs";
import { t } from "/language.mjs";
import { Copy, Head, Missing, quoted, Stale } from "/parts.mjs";
import { shown } from "/words.mjs";

/** The members that share the sources, what each holds, and which source went from whom to whom. */

const EVERY_MS = 2000;
const WELL = ["alive"];

export function View() {
  const answer = usePolled("/api/fleet", null, EVERY_MS);
  if (answer.data === null) return html`<${Missing} answer=${answer} what="fleet" />`;
  const { self, members, sources, takeovers, database, trouble } = answer.data;
  const loose = sources.filter(({ holder }) => holder === null).length;
  return html`<${Head} name=${t("Fleet")}>
      <p class="of">${t("members that share the sources; each source has one holder")}</p>
    </${Head}>
    <${Stale} answer=${answer} />
    ${trouble !== null && html`<p class="problem">${t("The database does not respond; this is from an earlier response.")} ${quoted(trouble)}</p>`}
    ${loose > 0 && html`<p class="warn">${t("Without a holder: {count}.", { count: shown(loose) })}</p>`}
    <section class="panel">
      <h2>${t("Members")}</h2>
      <div class="scroll" tabindex="0" role="region" aria-label=${t("Members")}><table class="listed">
        <thead><tr>
          <th scope="col">${t("member")}</th><th scope="col">${t("state")}</th>
          <th scope="col" class="n">${t("sources")}</th><th scope="col">${t("machine")}</th>
          <th scope="col">${t("started")}</th><th scope="col">${t("last heard of")}</th>
          <th scope="col">${t("before maintenance")}</th>
        </tr></thead>
        <tbody>${members.map((member) => html`<${Member} key=${member.name} member=${member} self=${self} />`)}</tbody>
      </table></div>
    </section>
    <section class="panel">
      <h2>${t("Who holds what")}</h2>
      <div class="scroll" tabindex="0" role="region" aria-label=${t("Who holds what")}><table class="listed">
        <thead><tr>
          <th scope="col">${t("source")}</th><th scope="col">${t("held by")}</th>
          <th scope="col">${t("since")}</th><th scope="col">${t("because")}</th>
        </tr></thead>
        <tbody>${sources.map(
          ({ source, holder, since, reason }) => html`<tr key=${source}>
            <td>${source}</td>
            <td class=${holder === null ? "bad" : ""}>${holder ?? t("nobody")}</td>
            <td>${since !== null && html`<${At} time=${since} />`}</td>
            <td>${reason !== null && t(REASONS[reason] ?? reason)}</td>
          </tr>`,
        )}</tbody>
      </table></div>
    </section>
    <section class="panel">
      <h2>${t("Takeovers")} <span class="of">${t("newest first")}</span></h2>
      ${takeovers.length === 0 && html`<p class="empty">${t("None yet.")}</p>`}
      ${
        takeovers.length > 0 &&
        html`<div class="scroll" tabindex="0" role="region" aria-label=${t("Takeovers")}><table class="listed">
        <thead><tr>
          <th scope="col">${t("when")}</th><th scope="col">${t("source")}</th>
          <th scope="col">${t("from member")}</th><th scope="col">${t("to member")}</th><th scope="col">${t("because")}</th>
        </tr></thead>
        <tbody>${takeovers.map(
          ({ source, from, to, epoch, at, reason }) => html`<tr key=${`${source} ${epoch}`}>
            <td><${At} time=${at} /></td><td>${source}</td><td>${from ?? "–"}</td><td>${to}</td>
            <td>${t(REASONS[reason] ?? reason)}</td>
          </tr>`,
        )}</tbody>
      </table></div>`
      }
    </section>
    ${database !== null && html`<${Database} database=${database} />`}`;
}

function Member({ member, self }) {
  const { name, state, sources, host, version, page, startedAt, seenAt, isDraining, unable } = member;
  const words = t(STATES[state] ?? state);
  const command = `plenum fleet ${isDraining ? "undrain" : "drain"} ${name}`;
  const label = html`<b>${name}</b>`;
  return html`<tr>
    <td>${name !== self && /^https?:/.test(page) && state === "alive" ? html`<a href=${page}>${label}</a>` : label}
      ${name === self && html` <span class="of">${t("this one")}</span>`}</td>
    <td class=${WELL.includes(state) ? "" : "warn"}>${words}${isDraining && state !== "draining" ? `, ${t("drained")}` : ""}
      ${unable.length > 0 && html` <span class="problem">${t("cannot start: {sources}", { sources: unable.join(", ") })}</span>`}</td>
    <td class="n">${shown(sources)}</td>
    <td>${host} <span class="of">${version}</span></td>
    <td><${At} time=${startedAt} /></td>
    <td><${At} time=${seenAt} /></td>
    <td><code>${command}</code> <${Copy} text=${command} /></td>
  </tr>`;
}

function Database({ database }) {
  const { name, server, bytes, doubts } = database;
  return html`<section class="panel">
    <h2>${t("Database")}</h2>
    <p>${name} <span class="of">${server} · ${shown(Math.round(bytes / 2 ** 20))} MiB</span></p>
    ${doubts.map((doubt) => html`<p class="problem" key=${doubt}>${quoted(doubt)}</p>`)}
  </section>`;
}

const STATES = {
  alive: "works",
  draining: "drained",
  leaving: "is stopping",
  left: "stopped",
  lost: "not heard of",
};

const REASONS = {
  first: "first holder",
  joined: "a member had less than its share",
  left: "its holder stopped",
  drained: "its holder was drained",
  "lease-ran-out": "its holder was not heard of",
  "could-not-start": "its holder could not begin with it",
  unreachable: "its holder did not reach its service",
};
