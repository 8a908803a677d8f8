import { html, useEffect, useRef, useState } from "/htm.mjs";
import { regionOf, spoken, t } from "/language.mjs";

/** The building, the choices as sliders, and their share of the quota while they change. */

/** A name and what is meant; asked for at each drawing, as the language may change. */
const GROUPS = {
  readings: () => [t("Measured values"), t("temperatures, flows, powers …")],
  meters: () => [t("Meters"), t("counters that only grow")],
  rest: () => [t("The rest"), t("states, modes, what has no unit")],
};
const BACKFILL_DAYS = [0, 1, 7, 30, 90, 365, 1095];
const SHARES = [0.2, 0.4, 0.6, 0.8, 1];
/** A slider that moves asks once it has rested for so long. */
const REST_MS = 200;

export function lasting(ms) {
  const seconds = ms / 1000;
  if (seconds < 120) return `${seconds} s`;
  return seconds < 7200 ? `${seconds / 60} min` : `${seconds / 3600} ${t("h")}`;
}

/** A sentence of the worker, which is a text and what is put into it. */
const told = ({ text, values }) => t(text, values);

/** A slider over the steps of a list; `none` adds "not at all" at its end. */
function Slider({ id, label, help, steps, value, none, text, change }) {
  const all = none === undefined ? steps : [...steps, null];
  const at = Math.max(0, all.indexOf(value));
  const said = value === null ? none : text(value);
  return html`<div class="slider">
    <label for=${id}>${label} ${help && html`<span class="of">${help}</span>`}</label>
    <output for=${id}>${said}</output>
    <input id=${id} type="range" min="0" max=${all.length - 1} step="1" value=${at} aria-valuetext=${said}
      onInput=${(event) => change(all[Number(event.target.value)])} />
  </div>`;
}

/** Cost of the latest choices; responses to earlier choices are dropped. */
function usePlan(wishes, first, ask) {
  const [plan, setPlan] = useState({ ...first, problem: null });
  const asked = useRef(wishes);
  useEffect(() => {
    if (asked.current === wishes) return undefined;
    let over = false;
    const refresh = async () => {
      try {
        const answer = await ask("/api/plan", wishes);
        if (!over) setPlan({ ...answer, problem: null });
      } catch (error) {
        if (!over) setPlan((last) => ({ ...last, problem: error.message }));
      }
    };
    const timer = setTimeout(() => void refresh(), REST_MS);
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, [wishes]);
  return plan;
}

export function Wishes({ looked, ask, written, back, Heading, Problem }) {
  const [wishes, setWishes] = useState(looked.wishes);
  const [zone, setZone] = useState(looked.zone.proposed ?? "");
  const [broker, setBroker] = useState("");
  const [state, setState] = useState({ busy: false, problem: null });
  const plan = usePlan(wishes, looked.plan, ask);
  const every = (group) => (ms) => setWishes((all) => ({ ...all, every: { ...all.every, [group]: ms } }));
  const write = async (event) => {
    event.preventDefault();
    setState({ busy: true, problem: null });
    try {
      const asked = { wishes, timeZone: zone.trim(), mqttUrl: broker };
      written(await ask("/api/write", asked));
    } catch (error) {
      setState({ busy: false, problem: error.message });
    }
  };
  return html`<${Seen} looked=${looked} back=${back} Heading=${Heading} />
    <form class="panel" onSubmit=${write}>
      ${
        looked.groups.length > 0 &&
        html`<h3>${t("How old may values become?")}</h3>
        ${looked.groups.map(
          ({ group, tags, units }) => html`<${Slider} key=${group} id=${group} label=${`${GROUPS[group]()[0]}, ${tags}`}
            help=${
              units
                .filter((unit) => unit !== "")
                .slice(0, 6)
                .join(", ") || GROUPS[group]()[1]
            }
            steps=${looked.steps} value=${wishes.every[group]} none=${t("not read")} text=${lasting} change=${every(group)} />`,
        )}
        <${History} wishes=${wishes} setWishes=${setWishes} />
        <${Slider} id="share" label=${t("Share of the quota")} help=${t("less leaves room for other programs with a token of yours")}
          steps=${SHARES} value=${wishes.polite} text=${(share) => `${new Intl.NumberFormat(regionOf()).format(share * 100)} %`}
          change=${(polite) => setWishes((all) => ({ ...all, polite }))} />`
      }
      <${Plan} plan=${plan} />
      <h3>${t("What cannot be seen from here")}</h3>
      <label for="zone">${t("Time zone of the buildings")}</label>
      <input id="zone" name="zone" list="zones" required autocomplete="off" spellcheck=${false} value=${zone} onInput=${(event) => setZone(event.target.value)} aria-describedby="zone-help" placeholder="Europe/Oslo" />
      <datalist id="zones">${Intl.supportedValuesOf("timeZone").map((zone) => html`<option value=${zone}></option>`)}</datalist>
      <p id="zone-help" class="of">${looked.zone.note === null ? t("The service does not state it; days and weeks of history begin by it.") : told(looked.zone.note)}</p>
      <label for="broker">${t("MQTT broker that gets the events")}</label>
      <input id="broker" name="broker" value=${broker} onInput=${(event) => setBroker(event.target.value)} autocomplete="off" spellcheck=${false} placeholder=${t("none: they go to files")} aria-describedby="broker-help" />
      <p id="broker-help" class="of">${t("Such as mqtt://localhost. Passwords, InfluxDB, webhooks and more are added in the file.")}</p>
      <${Problem} text=${state.problem} />
      <button disabled=${state.busy}>${t("Write the configuration")}</button>
    </form>`;
}

/** The past, as days; the resolution is the file's to change. */
function History({ wishes, setWishes }) {
  const { history } = wishes;
  const change = (days) =>
    setWishes((all) => ({
      ...all,
      history: days === null ? null : { resolution: "1h", backfillDays: days },
    }));
  const text = (days) => {
    if (days === 0) return t("from now on");
    return days === 1 ? t("1 day back") : t("{days} days back", { days });
  };
  return html`<${Slider} id="history" label=${t("Logged history, by the hour")} steps=${BACKFILL_DAYS}
    value=${history === null ? null : history.backfillDays} none=${t("not fetched")} text=${text} change=${change} />`;
}

function Seen({ looked, back, Heading }) {
  const { sites, systems } = looked;
  const largest = systems.filter(({ tags }) => tags > 0).slice(0, 5);
  return html`<section class="panel">
    <${Heading}>${t("What was seen")}<//>
    ${looked.notes.map((note) => html`<p class="of">${told(note)}</p>`)}
    <p>${looked.baseUrl}. ${told(looked.token)}.</p>
    <p><b>${told(looked.tags)}${unitsOf(looked.units)}</b>${activeAlarms(looked.alarms)}.</p>
    <ul class="sites" tabindex="0" aria-label=${t("Sites")}>${sites.map(
      ({ id, displayName, tags }) =>
        html`<li><span class="of">${id}</span> ${displayName} <span class="of">${tags === null ? "" : t("{tags} tags", { tags })}</span></li>`,
    )}</ul>
    ${largest.length > 0 && html`<p class="of">${t("Largest systems:")} ${largest.map(({ code, displayName, tags }) => `${code} ${displayName} (${tags})`).join(", ")}.</p>`}
    ${looked.doubts.map((doubt) => html`<p class="warn">${told(doubt)}</p>`)}
    <button type="button" class="quiet" onClick=${back}>${t("Another address or token")}</button>
  </section>`;
}

const UNITS_SHOWN = 5;

function unitsOf(units) {
  const most = units.slice(0, UNITS_SHOWN).map(({ unit, tags }) => `${unit === "" ? t("no unit") : unit} ${tags}`);
  return most.length === 0 ? "" : ` (${most.join(", ")}${units.length > most.length ? " …" : ""})`;
}

function activeAlarms(count) {
  if (count === null) return "";
  return `, ${count === 1 ? t("1 active alarm") : t("{count} active alarms", { count })}`;
}

function Plan({ plan }) {
  const { share, load, fits, lines, change, problem } = plan;
  return html`<section class="plan" role="status">
    <p class=${fits ? "good" : "warn"}><b>${told(share)}</b></p>
    <div class="bar" aria-hidden="true"><i class=${fits ? "" : "over"} style=${{ width: `${Math.min(100, load * 100)}%` }}></i></div>
    <ul>${lines.map((line) => html`<li>${told(line)}</li>`)}</ul>
    ${change !== null && html`<p>${t("The cheapest change:")} <span lang="en">${change}</span></p>`}
    ${problem !== null && html`<p class="problem" lang=${spoken() === "en" ? undefined : "en"}>${problem}</p>`}
  </section>`;
}
