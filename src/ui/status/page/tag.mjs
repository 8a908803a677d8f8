import { AlarmBriefs } from "/alarms.mjs";
import { TagPlot } from "/chart.mjs";
import { CommandRows } from "/commands.mjs";
import { html, useState } from "/htm.mjs";
import { at, intervalText, t, valueText } from "/language.mjs";
import { Copy, CopyAddress, Head, Missing, Panel, Stale, siteAddress, Table } from "/shared-components.mjs";
import { valueProblem } from "/tags.mjs";
import { viewAddress } from "/view-address.mjs";
import { Age, nowMs, Until } from "/worker-clock.mjs";
import { post, usePolled } from "/worker-requests.mjs";

const EVERY_MS = 4000;

export function View({ parts: [source = "", id = ""], query }) {
  const answer = usePolled(`/api/tag?${new URLSearchParams({ source, id })}`, null, EVERY_MS);
  const tag = answer.data;
  if (tag === null || answer.missing) return html`<${Missing} answer=${answer} what="tag" />`;
  const { displayName } = tag.tag;
  const site = tag.site === null ? [] : [[tag.site, siteAddress(source, tag.siteId)]];
  return html`
    <${Head} name=${displayName} above=${[...site, [t("Tag"), null]]}><${Figures} tag=${tag} /></${Head}>
    <${Stale} answer=${answer} />
    ${tag.gatewayOffline !== null && html`<p class="notices">${t("The gateway {name} is offline: its values are old.", { name: tag.gatewayOffline })}</p>`}
    <${TagPlot} source=${source} id=${id} query=${query} isBoolean=${typeof tag.value === "boolean"} name=${displayName} />
    <div class="halves">
      <div>
        <${Reading} tag=${tag} />
        <${TagLog} log=${tag.log} />
        <${SinkAddresses} addresses=${tag.places} />
      </div>
      <div>
        ${tag.writable !== null && html`<${Write} tag=${tag} done=${answer.again} />`}
        <${Panel} level="h3" title=${t("Alarms of this tag")}><${AlarmBriefs} alarms=${tag.alarms} none=${t("None is known.")} /><//>
        ${
          (tag.commands.length > 0 || tag.writable !== null) &&
          html`<${Panel} level="h3" title=${t("Last commands")}><${CommandRows} rows=${tag.commands} hasTag=${false} /><//>`
        }
      </div>
    </div>`;
}

function Figures({ tag: row }) {
  const { tag, source, value, time, lastGood } = row;
  const words = valueProblem(row);
  const unit = tag.unit ?? "";
  return html`<p class=${`figure ${words === null ? "" : "unknown"}`}>${valueText(value)}${unit !== "" && html` <span class="unit">${unit}</span>`}</p>
    <p><b class=${words === null ? "good" : "warn"}>${t(words ?? "good")}</b>
      ${time !== null && html` · ${t("read")} <${Age} of=${time} />`}
      ${value === null && lastGood !== null && html` · ${t("was {value}", { value: `${valueText(lastGood.value)} ${unit}`.trim() })} <${Age} of=${lastGood.time} />`}</p>
    <p class="of">${t("id {id}", { id: tag.id })} · <a href=${viewAddress("source", [source])}>${source}</a> <${CopyAddress} /></p>`;
}

function Reading({ tag: { class: name, everySeconds, next, tag, systems } }) {
  return html`<${Panel} level="h3" title=${t("Reading")}>
    <dl class="facts wide">
      <div><dt>${t("class")}</dt><dd>${name ?? t("none")}${everySeconds !== null && `, ${t("read every {time}", { time: intervalText(everySeconds) })}`}</dd></div>
      <div><dt>${t("next")}</dt><dd>${next.at !== null && html`<${Until} time=${next.at} /> · `}<span lang="en">${next.why}</span></dd></div>
      ${tag.description !== null && html`<div><dt>${t("description")}</dt><dd>${tag.description}</dd></div>`}
      ${systems.length > 0 && html`<div><dt>${t("systems")}</dt><dd>${systems.map(({ displayName }) => displayName).join(", ")}</dd></div>`}
    </dl><//>`;
}

function TagLog({ log }) {
  const rows = log.map(
    ({ resolution, state, knownUntil, holes }) => html`<tr key=${resolution}><td>${resolution}</td><td>${t(state)}</td>
      <td class="n">${knownUntil === null ? "–" : at(knownUntil, nowMs())}</td><td class="n">${valueText(holes)}</td></tr>`,
  );
  const head = [[t("resolution")], [t("state")], [t("known until"), "n"], [t("gaps"), "n"]];
  return html`<${Panel} level="h3" title=${t("Log at the service")}>
    <${Table} rows=${rows} head=${head} none=${t("Plenum does not read the history of this tag.")} /><//>`;
}

function SinkAddresses({ addresses }) {
  return html`<${Panel} kind="places" level="h3" title=${t("Where sinks publish it")}>
    ${addresses.length === 0 && html`<p class="quiet">${t("No sink publishes this tag.")}</p>`}
    <ul>${addresses.map(
      ({ sink, connector, text }) => html`<li key=${`${sink} ${text}`}>
        <span><a href=${viewAddress("sink", [sink])}>${sink}</a> <span class="of">${connector}</span></span>
        <code>${text}</code> <${Copy} text=${text} /></li>`,
    )}</ul><//>`;
}

/** Writes a value through the same gate as `plenum write`, after a confirmation. */
function Write({ tag, done }) {
  const { closed } = tag.writable;
  return html`<${Panel} kind="write" level="h3" title=${t("Write")}>${
    closed === null
      ? html`<${WriteForm} tag=${tag} limits=${tag.writable} done=${done} />`
      : html`<p class="quiet">${t("Writing is not possible now:")} <span lang="en">${closed}</span></p>`
  }<//>`;
}

/** Value of the input field; null when it may not be written. */
function valueIn(text, { type, min, max }) {
  if (type === "boolean") return text === "true" ? true : text === "false" ? false : null;
  const value = Number(text.trim().replace(",", "."));
  if (text.trim() === "" || !Number.isFinite(value)) return null;
  return (min !== null && value < min) || (max !== null && value > max) ? null : value;
}

function limitWords({ type, min, max, step }) {
  if (type === "boolean") return "";
  const words = [];
  if (min !== null && max !== null) words.push(t("{low} to {high}", { low: valueText(min), high: valueText(max) }));
  else if (min !== null) words.push(t("from {low}", { low: valueText(min) }));
  else if (max !== null) words.push(t("up to {high}", { high: valueText(max) }));
  if (step !== null) words.push(t("at most {step} per write", { step: valueText(step) }));
  return words.join(", ");
}

function WriteForm({ tag, limits, done }) {
  const [text, setText] = useState("");
  const [confirmed, setConfirmed] = useState(null);
  const [result, setResult] = useState(null);
  const value = valueIn(text, limits);
  const unit = tag.tag.unit ?? "";
  const submit = (event) => {
    event.preventDefault();
    setResult(null);
    // The gate rejects the write if the value has changed since the confirmation.
    if (value !== null) setConfirmed({ value, expect: tag.value });
  };
  const send = async () => {
    const { value: wanted, expect } = confirmed;
    setConfirmed(null);
    const writeTarget = { source: tag.source, tag: tag.tag.id, value: wanted };
    const { message, id } = await post("/api/write", expect === null ? writeTarget : { ...writeTarget, expect });
    setResult({ message, words: message ?? t("Sent to the gate as command {id}; the result appears below.", { id }) });
    if (message === null) setText("");
    done();
  };
  if (confirmed !== null) {
    const withUnit = (each) => `${valueText(each)} ${unit}`.trim();
    const newValueText = withUnit(confirmed.value);
    return html`<div class="confirm" role="group" aria-label=${t("confirm")}>
      <p>${t("Write {value} to {name}? The current value is {now}.", { value: newValueText, name: tag.tag.displayName, now: withUnit(confirmed.expect) })}</p>
      <button type="button" class="button danger" onClick=${send}>${t("write {value}", { value: newValueText })}</button>
      <button type="button" class="button" onClick=${() => setConfirmed(null)}>${t("cancel")}</button>
    </div>`;
  }
  return html`<form class="wish" onSubmit=${submit}>
    ${
      limits.type === "boolean"
        ? html`<select aria-label=${t("new value")} value=${text} onChange=${(event) => setText(event.target.value)}>
            <option value="">–</option><option value="true">${t("on")}</option><option value="false">${t("off")}</option></select>`
        : html`<input inputmode="decimal" aria-label=${t("new value")} value=${text} autocomplete="off" onInput=${(event) => setText(event.target.value)} />`
    }
    <span>${unit}</span> <button class="button" disabled=${value === null}>${t("write …")}</button>
    <span class="of">${limitWords(limits)}</span>
  </form>
  ${result !== null && html`<p class=${result.message === null ? "good" : "problem"} role="status">${result.words}</p>`}`;
}
