import { html, useState } from "/htm.mjs";
import { t } from "/language.mjs";
import { ordered } from "/order.mjs";
import { shown } from "/words.mjs";

/** Writes a value through the same gate as `plenum write`, after a confirmation. */

export function Write({ tag, done }) {
  const { writable } = tag;
  if (writable.closed !== null)
    return html`<section class="panel write"><h3>${t("Write")}</h3><p class="quiet">${t("Nothing can be written now:")} <span lang="en">${writable.closed}</span></p></section>`;
  return html`<section class="panel write"><h3>${t("Write")}</h3><${Form} tag=${tag} writable=${writable} done=${done} /></section>`;
}

/** Value of the input field; null when it may not be written. */
function valueIn(text, { type, min, max }) {
  if (type === "boolean") return text === "true" ? true : text === "false" ? false : null;
  const value = Number(text.trim().replace(",", "."));
  if (text.trim() === "" || !Number.isFinite(value)) return null;
  return (min !== null && value < min) || (max !== null && value > max) ? null : value;
}

function limitsOf({ type, min, max, step }) {
  if (type === "boolean") return "";
  const words = [];
  if (min !== null && max !== null) words.push(t("{low} to {high}", { low: shown(min), high: shown(max) }));
  else if (min !== null) words.push(t("from {low}", { low: shown(min) }));
  else if (max !== null) words.push(t("up to {high}", { high: shown(max) }));
  if (step !== null) words.push(t("at most {step} at once", { step: shown(step) }));
  return words.join(", ");
}

function Form({ tag, writable, done }) {
  const [text, type] = useState("");
  const [confirmed, confirm] = useState(null);
  const [said, say] = useState(null);
  const value = valueIn(text, writable);
  const unit = tag.tag.unit ?? "";
  const look = (event) => {
    event.preventDefault();
    say(null);
    // The confirmed request contains the current value.
    if (value !== null) confirm({ value, expect: tag.value });
  };
  const send = async () => {
    const { value: wanted, expect } = confirmed;
    confirm(null);
    const body = {
      source: tag.source,
      tag: tag.tag.id,
      value: wanted,
      ...(expect === null ? {} : { expect }),
    };
    const answer = await ordered("/api/write", body);
    say(
      answer.message === null
        ? {
            isDone: true,
            words: t("Sent to the gate as command {id}; the result appears below.", { id: answer.id }),
          }
        : { isDone: false, words: answer.message },
    );
    if (answer.message === null) type("");
    done();
  };
  if (confirmed !== null) {
    const from = `${shown(confirmed.expect)} ${unit}`.trim();
    const wanted = `${shown(confirmed.value)} ${unit}`.trim();
    return html`<div class="confirm" role="group" aria-label=${t("confirm")}>
      <p>${t("Write {value} to {name}? It is {now} now.", { value: wanted, name: tag.tag.displayName, now: from })}</p>
      <button type="button" class="button danger" onClick=${send}>${t("write {value}", { value: wanted })}</button>
      <button type="button" class="button" onClick=${() => confirm(null)}>${t("cancel")}</button>
    </div>`;
  }
  return html`<form class="wish" onSubmit=${look}>
    ${
      writable.type === "boolean"
        ? html`<select aria-label=${t("new value")} value=${text} onChange=${(event) => type(event.target.value)}>
            <option value="">–</option><option value="true">${t("on")}</option><option value="false">${t("off")}</option></select>`
        : html`<input inputmode="decimal" aria-label=${t("new value")} value=${text} autocomplete="off" onInput=${(event) => type(event.target.value)} />`
    }
    <span>${unit}</span> <button class="button" disabled=${value === null}>${t("write …")}</button>
    <span class="of">${limitsOf(writable)}</span>
  </form>
  ${said !== null && html`<p class=${said.isDone ? "good" : "problem"} role="status">${said.words}</p>`}`;
}
