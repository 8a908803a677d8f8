import { At } from "/clock.mjs";
import { html } from "/htm.mjs";
import { t } from "/language.mjs";

/** Result of the last change of the configuration file, and what waits for a restart; nothing without a change. */
export function Configuration({ configuration }) {
  if (configuration === null) return null;
  const { file, last, pending, refused } = configuration;
  const changes = last?.changes ?? [];
  if (refused === null && pending.length === 0 && changes.length === 0) return null;
  return html`<section class="panel silences">
    <h2>${t("Configuration")} <span class="of" lang="en">${file}</span></h2>
    ${refused !== null && html`<p class="problem">${t("The file is wrong and changes nothing; what was in force before goes on.")}</p>`}
    <ul lang="en">${(refused ?? []).map((problem) => html`<li key=${problem}>${problem}</li>`)}</ul>
    ${pending.length > 0 && html`<p class="warn">${t("Waits for a restart:")}</p>`}
    <${Changes} changes=${pending} />
    ${changes.length > 0 && html`<p class="of">${t("Changed while the worker ran:")} <${At} time=${last.at} /></p>`}
    <${Changes} changes=${changes} />
  </section>`;
}

function Changes({ changes }) {
  return html`<ul class="scroll" lang="en">${changes.map(
    ({ path, before, after, how }) => html`<li key=${path}>
      <b>${path}</b>
      <span class="of">${before ?? "–"} → ${after ?? "–"}</span>
      <span class="of">${how}</span>
    </li>`,
  )}</ul>`;
}
