import { amend, to } from "/address.mjs";
import { AlarmBriefs } from "/alarms.mjs";
import { usePolled } from "/asking.mjs";
import { Age, At, Now, nowMs } from "/clock.mjs";
import { html, useState } from "/htm.mjs";
import { t } from "/language.mjs";
import { CopyAddress, Head, Missing, Stale, siteAddress, tagAddress } from "/parts.mjs";
import { spanIn, TagPlot } from "/plot.mjs";
import { BeginSilence } from "/silences.mjs";
import { span } from "/words.mjs";

/** One alarm: its life on a line, the curve of its tag, and what each sink did with it. */

const EVERY_MS = 4000;

/** Colour of the timeline after each step. */
const PHASES = {
  raised: "active",
  retriggered: "active",
  changed: null,
  acknowledged: "acknowledged",
  recovering: "recovering",
  resolved: "over",
  vanished: "doubtful",
  "out of scope": "doubtful",
};

export function View({ parts: [source = "", id = "", episode = ""], query }) {
  const asked = new URLSearchParams({ source, id, ...(episode === "" ? {} : { episode }) });
  const answer = usePolled(`/api/alarm?${asked}`, null, EVERY_MS);
  const told = answer.data;
  if (told === null || answer.missing) return html`<${Missing} answer=${answer} what="alarm" />`;
  const { brief, alarm, life, tag } = told;
  return html`
    <${Head} name=${brief.name} above=${[[brief.site, siteAddress(source, alarm.site.id)], [t("Alarm"), null]]}>
      <p><span class=${`priority p${brief.priority}`}>${brief.priority}</span> <b class=${brief.endedAt === null ? "bad" : "good"}>${t(brief.state)}</b> · ${t("raised")} <${Age} of=${brief.raisedAt} />${
        alarm.acknowledged ? ` · ${t("acknowledged by {name}", { name: alarm.acknowledgedBy ?? t("somebody") })}` : ""
      }</p>
      <p>${alarm.description}</p>
      <p class="of">${t("id {id}", { id })} · <a href=${to("source", [source])}>${source}</a> <${CopyAddress} />
        ${brief.endedAt === null && html` <${BeginSilence} name=${brief.name} what=${{ source, alarm: id }} done=${answer.again} />`}</p>
    </${Head}>
    <${Stale} answer=${answer} />
    <${Life} life=${life} isOver=${brief.endedAt !== null} />
    ${tag !== null && html`<${Curve} tag=${tag} life=${life} query=${query} />`}
    <div class="halves">
      <${SinksOf} sinks=${told.sinks} />
      <section class="panel"><h3>${t("The same alarm before")}</h3>
        <${AlarmBriefs} alarms=${told.episodes.filter((each) => each.episode !== brief.episode)} none=${t("It is the only time that is known.")} /></section>
    </div>`;
}

/** Phase that begins with each step, and its duration; the last lasts while the alarm does. */
function stretchesOf(life, endMs) {
  let phase = "active";
  return life.map((step, n) => {
    phase = PHASES[step.what] ?? phase;
    const from = Date.parse(step.at);
    const until = n + 1 < life.length ? Date.parse(life[n + 1].at) : endMs;
    return { phase, ms: Math.max(0, until - from) };
  });
}

function Life({ life, isOver }) {
  if (life.length === 0) return null;
  const endMs = isOver ? Date.parse(life.at(-1).at) : nowMs();
  const stretches = stretchesOf(life, endMs);
  const whole = Math.max(1, endMs - Date.parse(life[0].at));
  return html`<section class="panel life"><h3>${t("Timeline")} <span class="of">${isOver ? t("lasted {time}", { time: span(whole / 1000) }) : html`${t("for")} <${Now} say=${(now) => span((now - Date.parse(life[0].at)) / 1000)} />`}</span></h3>
    <div class="line" aria-hidden="true">${stretches.map(
      ({ phase, ms }) =>
        ms > 0 && html`<i class=${phase} style=${{ flexGrow: String(Math.max(ms / whole, 0.01)) }}></i>`,
    )}</div>
    <ol>${life.map(
      (
        step,
        n,
      ) => html`<li key=${`${step.at} ${step.what}`}><i class=${stretches[n].phase}></i> <${At} time=${step.at} />
        <b>${t(step.what)}</b> <span lang="en">${step.words}</span>
        ${n > 0 && html`<span class="of">${t("after {time}", { time: span((Date.parse(step.at) - Date.parse(life[0].at)) / 1000) })}</span>`}</li>`,
    )}</ol></section>`;
}

/** With a line where the alarm was raised and where it ended. */
function Curve({ tag, life, query }) {
  const [isAsked, setAsked] = useState(false);
  const choose = (wanted) => {
    setAsked(false);
    amend({ span: wanted });
  };
  const marks = life
    .filter(({ what }) => what === "raised" || what === "resolved" || what === "acknowledged")
    .map(({ at: time, what }) => ({
      t: Date.parse(time) / 1000,
      colour: what === "raised" ? "bad" : what === "resolved" ? "good" : "warn",
    }));
  return html`<p class="of about">${t("The tag that it names:")} <a href=${tagAddress(tag.source, tag.id)}>${tag.displayName}</a></p>
    <${TagPlot} source=${tag.source} id=${tag.id} span=${spanIn(query)} choose=${choose} isAsked=${isAsked} ask=${() => setAsked(true)} marks=${marks} name=${tag.displayName} />`;
}

const MOODS = { delivered: "good", waiting: "warn", "dead letter": "bad" };

function SinksOf({ sinks }) {
  return html`<section class="panel"><h3>${t("What each sink did with it")}</h3>
    ${sinks.length === 0 && html`<p class="quiet">${t("None is configured.")}</p>`}
    ${
      sinks.length > 0 &&
      html`<table class="listed"><tbody>${sinks.map(
        (
          each,
        ) => html`<tr key=${each.sink}><td><a href=${to("sink", [each.sink])}>${each.sink}</a> <span class="of">${each.connector ?? ""}</span></td>
        <td><b class=${MOODS[each.state] ?? ""}>${t(each.state)}</b> <span class="of" lang="en">${each.words}</span>
        ${each.link !== null && html` <a href=${each.link} target="_blank" rel="noreferrer noopener">${t("open")}</a>`}</td></tr>`,
      )}</tbody></table>`
    }</section>`;
}
