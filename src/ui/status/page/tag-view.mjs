import { AlarmSummaryList } from "/alarm-panels.mjs";
import { TagPlot } from "/chart.mjs";
import { CommandRows } from "/commands-view.mjs";
import { CopyAddress, CopyButton, NotFound, Panel, StaleWarning, siteAddress, Table, ViewTitle } from "/components.mjs";
import { at, intervalText, valueText } from "/formats.mjs";
import { html, useState } from "/htm.mjs";
import { post, usePolledData } from "/status-api.mjs";
import { valueProblem } from "/tags-panel.mjs";
import { viewAddress } from "/view-url.mjs";
import { Age, nowMs, TimeUntil } from "/worker-clock.mjs";

const TAG_POLL_MS = 4000;

export function View({ parts: [source = "", id = ""], query }) {
  const response = usePolledData(`/api/tag?${new URLSearchParams({ source, id })}`, null, TAG_POLL_MS);
  const tag = response.data;
  if (tag === null || response.missing) return html`<${NotFound} answer=${response} what="tag" />`;
  const { displayName } = tag.tag;
  const siteLinks = tag.site === null ? [] : [[tag.site, siteAddress(source, tag.siteId)]];
  return html`
    <${ViewTitle} name=${displayName} above=${[...siteLinks, ["Tag", null]]}><${TagFigures} tag=${tag} /></${ViewTitle}>
    <${StaleWarning} answer=${response} />
    ${tag.gatewayOffline !== null && html`<p class="notices">The gateway ${tag.gatewayOffline} is offline: its values are old.</p>`}
    <${TagPlot} source=${source} id=${id} query=${query} isBoolean=${typeof (tag.value ?? tag.lastGood?.value) === "boolean"} name=${displayName} />
    <div class="halves">
      <div>
        <${TagReadingPanel} tag=${tag} />
        <${TagLogPanel} log=${tag.log} />
        <${SinkAddressesPanel} addresses=${tag.places} />
      </div>
      <div>
        ${tag.writable !== null && html`<${WritePanel} tag=${tag} done=${response.again} />`}
        <${Panel} level="h3" title="Alarms of this tag"><${AlarmSummaryList} alarms=${tag.alarms} none="None is known." /><//>
        ${
          (tag.commands.length > 0 || tag.writable !== null) &&
          html`<${Panel} level="h3" title="Last commands"><${CommandRows} rows=${tag.commands} hasTag=${false} /><//>`
        }
      </div>
    </div>`;
}

function TagFigures({ tag: row }) {
  const { tag, source, value, time, lastGood } = row;
  const valueProblemText = valueProblem(row);
  const unit = tag.unit ?? "";
  return html`<p class=${`figure ${valueProblemText === null ? "" : "unknown"}`}>${valueText(value)}${unit !== "" && html` <span class="unit">${unit}</span>`}</p>
    <p><b class=${valueProblemText === null ? "good" : "warn"}>${valueProblemText ?? "good"}</b>
      ${time !== null && html` · read <${Age} of=${time} />`}
      ${value === null && lastGood !== null && html` · was ${`${valueText(lastGood.value)} ${unit}`.trim()} <${Age} of=${lastGood.time} />`}</p>
    <p class="of">${[`id ${tag.id}`, tag.alias, tag.path].filter((name) => name !== undefined).join(" · ")} · <a href=${viewAddress("source", [source])}>${source}</a> <${CopyAddress} /></p>`;
}

function TagReadingPanel({ tag: { class: name, everySeconds, next, tag, systems } }) {
  return html`<${Panel} level="h3" title="Reading">
    <dl class="facts wide">
      <div><dt>class</dt><dd>${name ?? "none"}${everySeconds !== null && `, read every ${intervalText(everySeconds)}`}</dd></div>
      <div><dt>next</dt><dd>${next.at !== null && html`<${TimeUntil} time=${next.at} /> · `}${next.why}</dd></div>
      ${tag.description !== null && html`<div><dt>description</dt><dd>${tag.description}</dd></div>`}
      ${systems.length > 0 && html`<div><dt>systems</dt><dd>${systems.map(({ displayName }) => displayName).join(", ")}</dd></div>`}
    </dl><//>`;
}

function TagLogPanel({ log }) {
  const rows = log.map(
    ({ resolution, state, knownUntil, holes }) => html`<tr key=${resolution}><td>${resolution}</td><td>${state}</td>
      <td class="n">${knownUntil === null ? "–" : at(knownUntil, nowMs())}</td><td class="n">${valueText(holes)}</td></tr>`,
  );
  const tableHead = [["resolution"], ["state"], ["known until", "n"], ["gaps", "n"]];
  return html`<${Panel} level="h3" title="Log at the service">
    <${Table} rows=${rows} head=${tableHead} none="Plenum does not read the history of this tag." /><//>`;
}

function SinkAddressesPanel({ addresses }) {
  return html`<${Panel} kind="places" level="h3" title="Where sinks publish it">
    ${addresses.length === 0 && html`<p class="quiet">No sink has published this tag.</p>`}
    <ul>${addresses.map(
      ({ sink, connector, text }) => html`<li key=${`${sink} ${text}`}>
        <span><a href=${viewAddress("sink", [sink])}>${sink}</a> <span class="of">${connector}</span></span>
        <code>${text}</code> <${CopyButton} text=${text} /></li>`,
    )}</ul><//>`;
}

/** Form that writes a value like `plenum write`, after a confirmation. */
function WritePanel({ tag, done }) {
  const { closed } = tag.writable;
  return html`<${Panel} kind="write" level="h3" title="Write">${
    closed === null
      ? html`<${WriteForm} tag=${tag} limits=${tag.writable} done=${done} />`
      : html`<p class="quiet">Writing is not possible now: ${closed}</p>`
  }<//>`;
}

/** Parses a typed value; returns null for a text that is not a value or for a value outside the limits. */
function parseInputValue(text, { type, min, max }) {
  if (type === "boolean") return text === "true" ? true : text === "false" ? false : null;
  const value = Number(text.trim().replace(",", "."));
  if (text.trim() === "" || !Number.isFinite(value)) return null;
  return (min !== null && value < min) || (max !== null && value > max) ? null : value;
}

function writeLimitText({ type, min, max, step }) {
  if (type === "boolean") return "";
  const limits = [];
  if (min !== null && max !== null) limits.push(`${valueText(min)} to ${valueText(max)}`);
  else if (min !== null) limits.push(`from ${valueText(min)}`);
  else if (max !== null) limits.push(`up to ${valueText(max)}`);
  if (step !== null) limits.push(`at most ${valueText(step)} per write`);
  return limits.join(", ");
}

function WriteForm({ tag, limits, done }) {
  const [inputText, setInputText] = useState("");
  const [pendingWrite, setPendingWrite] = useState(null);
  const [result, setResult] = useState(null);
  const value = parseInputValue(inputText, limits);
  const unit = tag.tag.unit ?? "";
  const askToConfirm = (event) => {
    event.preventDefault();
    setResult(null);
    // The worker rejects the write if the tag's value has changed since the confirmation.
    if (value !== null) setPendingWrite({ value, expect: tag.value });
  };
  const sendWrite = async () => {
    const { value: newValue, expect } = pendingWrite;
    setPendingWrite(null);
    const writeRequest = { source: tag.source, tag: tag.tag.id, value: newValue };
    const { message, id } = await post("/api/write", expect === null ? writeRequest : { ...writeRequest, expect });
    setResult({ message, words: message ?? `Sent to the gate as command ${id}; the result appears below.` });
    if (message === null) setInputText("");
    done();
  };
  if (pendingWrite !== null) {
    const valueWithUnit = (value) => `${valueText(value)} ${unit}`.trim();
    const newValueText = valueWithUnit(pendingWrite.value);
    return html`<div class="confirm" role="group" aria-label="confirm">
      <p>Write ${newValueText} to ${tag.tag.displayName}? The current value is ${valueWithUnit(pendingWrite.expect)}.</p>
      <button type="button" class="button danger" onClick=${sendWrite}>write ${newValueText}</button>
      <button type="button" class="button" onClick=${() => setPendingWrite(null)}>cancel</button>
    </div>`;
  }
  return html`<form class="write-form" onSubmit=${askToConfirm}>
    ${
      limits.type === "boolean"
        ? html`<select aria-label="new value" value=${inputText} onChange=${(event) => setInputText(event.target.value)}>
            <option value="">–</option><option value="true">on</option><option value="false">off</option></select>`
        : html`<input inputmode="decimal" aria-label="new value" value=${inputText} autocomplete="off" onInput=${(event) => setInputText(event.target.value)} />`
    }
    <span>${unit}</span> <button class="button" disabled=${value === null}>write …</button>
    <span class="of">${writeLimitText(limits)}</span>
  </form>
  ${result !== null && html`<p class=${result.message === null ? "good" : "problem"} role="status">${result.words}</p>`}`;
}
