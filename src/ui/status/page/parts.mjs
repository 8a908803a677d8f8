import { to } from "/address.mjs";
import { nowMs } from "/clock.mjs";
import { html, useEffect, useRef, useState } from "/htm.mjs";
import { t } from "/language.mjs";
import { doubt } from "/words.mjs";

/** Small things that every view is made of. Text only ever goes into text nodes. */

/** Placeholder for an unknown number in a narrow column. */
export const unknown = () => html`<abbr title=${t("not known")}>?</abbr>`;

export function Priorities({ counts }) {
  if (counts === null) return html`<span class="of">${t("unknown")}</span>`;
  return Object.entries(counts)
    .toSorted(([a], [b]) => (a < b ? -1 : 1))
    .map(([priority, count]) => html`<span class=${`priority p${priority}`}>${priority} ${count}</span>`);
}

/** Marks a list whose last request failed. */
export function Stale({ answer }) {
  if (answer.failed === null) return null;
  const words =
    answer.atMs === null
      ? t("The worker has not sent this yet.")
      : t("The worker did not respond; this is from an earlier response.");
  return html`<p class="problem">${words} ${answer.failed}</p>`;
}

/** Why a list may not be all there is, or not how it is now. */
export function Doubt({ reading, what }) {
  const words = doubt(reading, what, nowMs());
  if (words === null) return null;
  return html`<p class="warn">${t("Not all {what} are known: {words}.", { what: t(what), words })}</p>`;
}

/** Text of the service or a sink, in its own language. */
export const quoted = (text) => html`<span lang="en">${text}</span>`;

export function Copy({ text, name = t("copy") }) {
  const [said, say] = useState("");
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      say(t("copied"));
    } catch {
      say(t("cannot be copied here"));
    }
    setTimeout(say, 2000, "");
  };
  return html`<button type="button" class="mute" onClick=${copy} aria-live="polite">${said || name}</button>`;
}

/** Heading of a view: its parents, its name, and a link to share. */
export function Head({ above = [], name, children }) {
  const heading = useRef(null);
  // Keyboard users continue from the heading.
  useEffect(() => heading.current.focus({ preventScroll: true }), []);
  return html`<div class="head">
    <p class="path"><a href="#/">${t("Overview")}</a>${above.map(
      ([words, href]) => html` › ${href === null ? words : html`<a href=${href}>${words}</a>`}`,
    )}</p>
    <h2 tabindex="-1" ref=${heading}>${name}</h2>
    <div class="figures">${children}</div>
  </div>`;
}

export function CopyAddress() {
  return html`<${Copy} text=${location.href} name=${t("copy this address")} />`;
}

/** Reason why there is nothing to show. */
export function Missing({ answer, what }) {
  if (answer.missing && answer.holder) {
    const { name, page } = answer.holder;
    return html`<p class="panel empty">${t("Another member of the fleet has this now: {member}.", { member: name })} ${
      page === "" ? html`<a href="#/fleet">${t("Fleet")}</a>` : html`<a href=${`${page}/${location.hash}`}>${page}</a>`
    }</p>`;
  }
  if (answer.missing)
    return html`<p class="panel empty">${t("There is no such {what}.", { what: t(what) })} <a href="#/">${t("Overview")}</a></p>`;
  if (answer.failed !== null) return html`<${Stale} answer=${answer} />`;
  return html`<p class="loading">${t("Loading …")}</p>`;
}

export const tagAddress = (source, id, query) => to("tag", [source, id], query);
export const siteAddress = (source, id) => to("site", [source, id]);
export const alarmAddress = (source, id, episode = null) =>
  to("alarm", episode === null ? [source, id] : [source, id, episode]);

/** A button that asks once more before it does what cannot be taken back. */
export function Twice({ name, again, done, kind = "mute" }) {
  const [asked, ask] = useState(false);
  const [refusal, refuse] = useState("");
  const press = async () => {
    if (!asked) return ask(true);
    ask(false);
    refuse((await done()) ?? "");
  };
  return html`<button type="button" class=${kind} onClick=${press} onBlur=${() => ask(false)}>${asked ? again : name}</button>
    ${refusal !== "" && html` <b class="problem" role="alert">${refusal}</b>`}`;
}
