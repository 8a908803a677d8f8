import { amend, to } from "/address.mjs";
import { AlarmBriefs } from "/alarms.mjs";
import { usePolled } from "/asking.mjs";
import { Age, nowMs, Until } from "/clock.mjs";
import { CommandRows } from "/command-rows.mjs";
import { html, useState } from "/htm.mjs";
import { t } from "/language.mjs";
import { Copy, CopyAddress, Head, Missing, Stale, siteAddress } from "/parts.mjs";
import { spanIn, TagPlot } from "/plot.mjs";
import { trouble } from "/tags.mjs";
import { at, lasting, shown } from "/words.mjs";
import { Write } from "/write.mjs";

/** One tag: its value, how it went, and everything that `plenum explain` knows of it. */

const EVERY_MS = 4000;

export function View({ parts: [source = "", id = ""], query }) {
  const answer = usePolled(`/api/tag?${new URLSearchParams({ source, id })}`, null, EVERY_MS);
  const [isAsked, setAsked] = useState(false);
  const tag = answer.data;
  if (tag === null || answer.missing) return html`<${Missing} answer=${answer} what="tag" />`;
  const choose = (span) => {
    setAsked(false);
    amend({ span });
  };
  return html`
    <${Head} name=${tag.tag.displayName} above=${[
      ...(tag.site === null ? [] : [[tag.site, siteAddress(source, tag.siteId)]]),
      [t("Tag"), null],
    ]}><${Figures} tag=${tag} /></${Head}>
    <${Stale} answer=${answer} />
    ${tag.gatewayOffline !== null && html`<p class="notices" lang="en">${tag.gatewayOffline}</p>`}
    <${TagPlot} source=${source} id=${id} span=${spanIn(query)} choose=${choose} isAsked=${isAsked} ask=${() => setAsked(true)}
      isBoolean=${typeof tag.value === "boolean"} name=${tag.tag.displayName} />
    <div class="halves">
      <div>
        <${Reading} tag=${tag} />
        <${TagLog} log=${tag.log} />
        <${Places} places=${tag.places} />
      </div>
      <div>
        ${tag.writable !== null && html`<${Write} tag=${tag} done=${answer.again} />`}
        <section class="panel"><h3>${t("Alarms of this tag")}</h3>
          <${AlarmBriefs} alarms=${tag.alarms} none=${t("None is known.")} /></section>
        ${
          (tag.commands.length > 0 || tag.writable !== null) &&
          html`<section class="panel"><h3>${t("Last commands")}</h3>
          <${CommandRows} rows=${tag.commands} hasTag=${false} /></section>`
        }
      </div>
    </div>`;
}

function Figures({ tag }) {
  const what = trouble(tag);
  const { unit } = tag.tag;
  return html`<p class=${`figure ${what === null ? "" : "unknown"}`}>${shown(tag.value)}${unit !== null && html` <span class="unit">${unit}</span>`}</p>
    <p>${what === null ? html`<b class="good">${t("good")}</b>` : html`<b class="warn">${t(what)}</b>`}
      ${tag.time !== null && html` · ${t("read")} <${Age} of=${tag.time} />`}
      ${tag.value === null && tag.lastGood !== null && html` · ${t("was {value}", { value: `${shown(tag.lastGood.value)} ${unit ?? ""}`.trim() })} <${Age} of=${tag.lastGood.time} />`}</p>
    <p class="of">${t("id {id}", { id: tag.tag.id })} · <a href=${to("source", [tag.source])}>${tag.source}</a> <${CopyAddress} /></p>`;
}

function Reading({ tag }) {
  return html`<section class="panel"><h3>${t("Reading")}</h3>
    <dl class="facts wide">
      <div><dt>${t("class")}</dt><dd>${tag.class ?? t("none")}${tag.everySeconds !== null && `, ${t("read every {time}", { time: lasting(tag.everySeconds) })}`}</dd></div>
      <div><dt>${t("next")}</dt><dd>${tag.next.at !== null && html`<${Until} time=${tag.next.at} /> · `}<span lang="en">${tag.next.why}</span></dd></div>
      ${tag.tag.description !== null && html`<div><dt>${t("description")}</dt><dd>${tag.tag.description}</dd></div>`}
      ${tag.systems.length > 0 && html`<div><dt>${t("systems")}</dt><dd>${tag.systems.map(({ displayName }) => displayName).join(", ")}</dd></div>`}
    </dl></section>`;
}

function TagLog({ log }) {
  return html`<section class="panel"><h3>${t("Log at the service")}</h3>
    ${
      log.length === 0
        ? html`<p class="quiet">${t("No history of it is followed.")}</p>`
        : html`<table><thead><tr><th>${t("resolution")}</th><th>${t("state")}</th><th class="n">${t("known until")}</th><th class="n">${t("holes")}</th></tr></thead>
        <tbody>${log.map(
          (each) => html`<tr key=${each.resolution}><td>${each.resolution}</td><td>${t(each.state)}</td>
          <td class="n">${each.knownUntil === null ? "–" : at(each.knownUntil, nowMs())}</td><td class="n">${shown(each.holes)}</td></tr>`,
        )}</tbody></table>`
    }</section>`;
}

function Places({ places }) {
  return html`<section class="panel places"><h3>${t("Where to get it")}</h3>
    ${places.length === 0 && html`<p class="quiet">${t("No sink tells it.")}</p>`}
    <ul>${places.map(
      ({
        sink,
        connector,
        text,
      }) => html`<li key=${`${sink} ${text}`}><span><a href=${to("sink", [sink])}>${sink}</a> <span class="of">${connector}</span></span>
      <code>${text}</code> <${Copy} text=${text} /></li>`,
    )}</ul></section>`;
}
