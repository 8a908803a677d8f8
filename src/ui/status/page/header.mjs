import { Now } from "/clock.mjs";
import { html } from "/htm.mjs";
import { LANGUAGES, spoken, t } from "/language.mjs";
import { ago, at, counted, minuteOf, shown } from "/words.mjs";

/** Header of every view: state of Plenum and the buildings, and navigation. */

const OTHER = { en: "nb", nb: "en" };

export function Header({ report, lost, view, choose }) {
  const [mood, words] =
    lost !== null
      ? ["lost", t("no response")]
      : report.notices.length > 0
        ? ["trouble", t("Plenum needs attention")]
        : ["well", t("Plenum works")];
  const other = OTHER[spoken()];
  return html`<header>
    <h1><img src="/favicon.svg" alt="" /> Plenum</h1>
    <nav aria-label=${t("views")}>
      ${[
        ["", t("Overview")],
        ["tags", t("Tags")],
        ...(report.commands === null ? [] : [["commands", t("Commands")]]),
        ...(report.member === undefined ? [] : [["fleet", t("Fleet")]]),
      ].map(
        ([name, label]) => html`<a href=${`#/${name}`} aria-current=${view === name ? "page" : undefined}>${label}</a>`,
      )}
    </nav>
    <p class=${`pulse ${mood}`} role="status">${words}</p>
    <p class=${lost === null ? "buildings" : "buildings of"}><${Buildings} sources=${report.sources} /></p>
    <p class="of">
      <${Now} say=${minuteOf} /> · ${
        report.startedAt === null
          ? `${t("no worker is running")} · `
          : html`<span class="wide"><${Now} say=${(now) => t("started {ago}", { ago: ago(report.startedAt, now) })} /> · </span>`
      }${t("version {version}", { version: report.version })}
    </p>
    <button type="button" class="mute" lang=${other} onClick=${() => choose(other)}>${LANGUAGES[other]}</button>
  </header>`;
}

/** State of the buildings, separate from the state of Plenum. */
function Buildings({ sources }) {
  const readings = sources.map((source) => source.readings.alarms);
  const isKnown = readings.every(({ state }) => state === "whole" || state === "part");
  if (!isKnown) return t("Buildings: alarms unknown");
  const held = readings.reduce((sum, reading) => sum + reading.held, 0);
  const counts = sources.flatMap((source) => source.sites).map((site) => site.alarms?.A ?? 0);
  const highest = counts.reduce((a, b) => a + b, 0);
  if (held === 0) return t("Buildings: no active alarm");
  const words = t("Buildings: {alarms}", { alarms: counted(held, "active alarm") });
  return highest === 0
    ? words
    : html`${words}, <b class="bad">${t("{count} of priority A", { count: shown(highest) })}</b>`;
}

/** Warns that the data below is old. */
export function Lost({ lost }) {
  if (lost === null) return null;
  const since = new Date(lost.sinceMs).toISOString();
  const time = at(since, Date.now());
  const what =
    lost.what === "away"
      ? t("The worker has not responded since {time}", { time })
      : t("The worker answers with an old time since {time}", { time });
  // By the browser's own clock: the worker's is what stands still.
  return html`<section class="gone" role="alert">
    <b>${what}, <${Now} say=${() => ago(since, Date.now())} />.</b>
    ${t("What you see is old: it is from then, and its ages go on counting.")}
  </section>`;
}

export function Notices({ notices }) {
  if (notices.length === 0) return null;
  return html`<section class="notices" aria-label=${t("Attention")}>
    <ul>${notices.map((text) => html`<li lang="en">${text}</li>`)}</ul>
  </section>`;
}

/** How far the first reading of each building's lists is, in the worker's own words. */
export function FirstInventory({ sources }) {
  const reading = sources.filter(({ firstInventory }) => firstInventory?.message != null);
  return reading.map(
    ({ name, firstInventory }) =>
      html`<p class="of" role="status" lang="en" key=${name}>${sources.length > 1 ? `${name}: ` : ""}${firstInventory.message}</p>`,
  );
}
