import { html, render, useEffect, useRef, useState } from "/htm.mjs";

/** Rejects with a message for the user and the HTTP status; the status is 0 without a response. */
async function requestSetup(path, body) {
  let response;
  try {
    response = await fetch(path, {
      method: body === undefined ? "GET" : "POST",
      headers: { "content-type": "application/json", "x-plenum": "status-page" },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
  } catch {
    throw Object.assign(new Error("Plenum does not respond. See the terminal."), { status: 0 });
  }
  if (response.status === 204) return null;
  const result = await response.json().catch(() => ({}));
  if (response.ok) return result;
  throw Object.assign(new Error(result.message ?? "The request failed."), { status: response.status });
}

function useSetupRequest() {
  const [state, setState] = useState({ busy: false, problem: null });
  const run = async (action) => {
    setState({ busy: true, problem: null });
    try {
      await action();
      setState({ busy: false, problem: null });
    } catch (error) {
      setState({ busy: false, problem: error.message });
    }
  };
  return { ...state, run };
}

function ProblemText({ text }) {
  return html`<p class="problem" role="alert">${text ?? ""}</p>`;
}

/** Heading that takes the focus, so that keyboard and screen reader start at the new step. */
function FocusedHeading({ children }) {
  const headingElement = useRef(null);
  useEffect(() => headingElement.current?.focus(), []);
  return html`<h2 ref=${headingElement} tabindex="-1">${children}</h2>`;
}

function CodeForm({ done }) {
  const { busy, problem, run } = useSetupRequest();
  const submitCode = (event) => {
    event.preventDefault();
    const code = new FormData(event.target).get("code");
    void run(async () => {
      await requestSetup("/api/code", { code });
      await done();
    });
  };
  return html`<form class="panel" onSubmit=${submitCode}>
    <${FocusedHeading}>Enter the code<//>
    <p>The terminal shows the code. You started Plenum there with: <code>plenum run --setup</code></p>
    <label for="code">Code</label>
    <input id="code" name="code" autocomplete="off" autocapitalize="characters" spellcheck=${false} required placeholder="XXXX-XXXX" />
    <${ProblemText} text=${problem} />
    <button disabled=${busy}>Continue</button>
  </form>`;
}

function AddressForm({ done }) {
  const { busy, problem, run } = useSetupRequest();
  const inspectAddress = (event) => {
    event.preventDefault();
    const formData = new FormData(event.target);
    const [address, token] = [formData.get("address"), formData.get("token")];
    void run(async () =>
      done(await requestSetup("/api/look", { address, token, allowPlainHttp: formData.get("plain") === "on" })),
    );
  };
  return html`<form class="panel" onSubmit=${inspectAddress}>
    <${FocusedHeading}>Where is the building?<//>
    <label for="address">Address of the monitoring service</label>
    <input id="address" name="address" type="text" inputmode="url" autocomplete="off" spellcheck=${false} required placeholder="https://monitoring.example.com" />
    <label for="token">Access token</label>
    <input id="token" name="token" type="password" autocomplete="off" required aria-describedby="token-help" />
    <p id="token-help" class="of">Create a token in your user profile at the service. Plenum stores it in a separate file that only you can read.</p>
    <label class="check"><input name="plain" type="checkbox" /> Test network only: send the token unencrypted over http://</label>
    <${ProblemText} text=${problem} />
    <button disabled=${busy}>${busy ? "Inspecting …" : "Inspect the building"}</button>
    <p class="of" role="status">${busy ? "Plenum inspects alarms and tags. A large building takes half a minute." : ""}</p>
  </form>`;
}

/** Label and explanation of each group of tags. */
const TAG_GROUP_LABELS = {
  readings: ["Measured values", "temperatures, flows, powers …"],
  meters: ["Meters", "counters that only increase"],
  rest: ["The rest", "states, modes and values without a unit"],
};
const BACKFILL_DAY_STEPS = [0, 1, 7, 30, 90, 365, 1095];
const QUOTA_SHARE_STEPS = [0.2, 0.4, 0.6, 0.8, 1];
const PLAN_REQUEST_DELAY_MS = 200;

function valueAgeText(ageMs) {
  const seconds = ageMs / 1000;
  if (seconds < 120) return `${seconds} s`;
  return seconds < 7200 ? `${seconds / 60} min` : `${seconds / 3600} h`;
}

/** Slider over a list of values. `none`: text of an added last step that selects null, such as "not at all". */
function Slider({ id, label, help, steps, value, none, text, change }) {
  const allSteps = none === undefined ? steps : [...steps, null];
  const stepIndex = Math.max(0, allSteps.indexOf(value));
  const valueText = value === null ? none : text(value);
  return html`<div class="slider">
    <label for=${id}>${label} ${help && html`<span class="of">${help}</span>`}</label>
    <output for=${id}>${valueText}</output>
    <input id=${id} type="range" min="0" max=${allSteps.length - 1} step="1" value=${stepIndex} aria-valuetext=${valueText}
      onInput=${(event) => change(allSteps[Number(event.target.value)])} />
  </div>`;
}

/** Requests the quota plan of the latest choices; a response to earlier choices is dropped. */
function useQuotaPlan(choices, initialPlan) {
  const [plan, setPlan] = useState({ ...initialPlan, problem: null });
  const plannedChoices = useRef(choices);
  useEffect(() => {
    if (plannedChoices.current === choices) return undefined;
    let isUnmounted = false;
    const refreshPlan = async () => {
      try {
        const result = await requestSetup("/api/plan", choices);
        if (!isUnmounted) setPlan({ ...result, problem: null });
      } catch (error) {
        if (!isUnmounted) setPlan((previous) => ({ ...previous, problem: error.message }));
      }
    };
    const timer = setTimeout(() => void refreshPlan(), PLAN_REQUEST_DELAY_MS);
    return () => {
      isUnmounted = true;
      clearTimeout(timer);
    };
  }, [choices]);
  return plan;
}

function SetupChoicesForm({ looked, done, back }) {
  const [choices, setChoices] = useState(looked.choices);
  const [zone, setZone] = useState(looked.zone.proposed ?? "");
  const [broker, setBroker] = useState("");
  const { busy, problem, run } = useSetupRequest();
  const plan = useQuotaPlan(choices, looked.plan);
  const changeGroupInterval = (group) => (intervalMs) =>
    setChoices((prev) => ({ ...prev, every: { ...prev.every, [group]: intervalMs } }));
  const writeConfiguration = (event) => {
    event.preventDefault();
    void run(async () => done(await requestSetup("/api/write", { choices, timeZone: zone.trim(), mqttUrl: broker })));
  };
  return html`<${BuildingPanel} looked=${looked} back=${back} />
    <form class="panel" onSubmit=${writeConfiguration}>
      ${
        looked.groups.length > 0 &&
        html`<h3>How old may values become?</h3>
        ${looked.groups.map(({ group, tags, units }) => {
          const [label, explanation] = TAG_GROUP_LABELS[group];
          const firstUnits = units.filter((unit) => unit !== "").slice(0, 6);
          return html`<${Slider} key=${group} id=${group} label=${`${label}, ${tags}`} help=${firstUnits.join(", ") || explanation}
            steps=${looked.steps} value=${choices.every[group]} none="not read" text=${valueAgeText} change=${changeGroupInterval(group)} />`;
        })}
        <${HistorySlider} choices=${choices} setChoices=${setChoices} />
        <${Slider} id="share" label="Share of the quota" help="a smaller share leaves requests for your other programs"
          steps=${QUOTA_SHARE_STEPS} value=${choices.polite} text=${(share) => `${Math.round(share * 100)} %`}
          change=${(polite) => setChoices((prev) => ({ ...prev, polite }))} />`
      }
      <${QuotaPlan} plan=${plan} />
      <h3>Settings that the service does not provide</h3>
      <label for="zone">Time zone of the buildings</label>
      <input id="zone" name="zone" list="zones" required autocomplete="off" spellcheck=${false} value=${zone} onInput=${(event) => setZone(event.target.value)} aria-describedby="zone-help" placeholder="Europe/Oslo" />
      <datalist id="zones">${Intl.supportedValuesOf("timeZone").map((zone) => html`<option value=${zone}></option>`)}</datalist>
      <p id="zone-help" class="of">${looked.zone.note === null ? "The service does not state the time zone. Days and weeks of history begin in this zone." : looked.zone.note}</p>
      <label for="broker">MQTT broker that receives the events</label>
      <input id="broker" name="broker" value=${broker} onInput=${(event) => setBroker(event.target.value)} autocomplete="off" spellcheck=${false} placeholder="none: events go to files" aria-describedby="broker-help" />
      <p id="broker-help" class="of">For example mqtt://localhost. Add passwords, InfluxDB, webhooks and more in the file.</p>
      <${ProblemText} text=${problem} />
      <button disabled=${busy}>Write the configuration</button>
    </form>`;
}

function HistorySlider({ choices, setChoices }) {
  const { history } = choices;
  const changeBackfillDays = (days) =>
    setChoices((prev) => ({ ...prev, history: days === null ? null : { resolution: "1h", backfillDays: days } }));
  const backfillDaysText = (days) => (days === 0 ? "from now on" : days === 1 ? "1 day back" : `${days} days back`);
  return html`<${Slider} id="history" label="Logged history, by the hour" steps=${BACKFILL_DAY_STEPS}
    value=${history === null ? null : history.backfillDays} none="not fetched" text=${backfillDaysText} change=${changeBackfillDays} />`;
}

function BuildingPanel({ looked, back }) {
  const { sites, systems } = looked;
  const largestSystems = systems.filter(({ tags }) => tags > 0).slice(0, 5);
  return html`<section class="panel">
    <${FocusedHeading}>Inspection result<//>
    ${looked.notes.map((note) => html`<p class="of">${note}</p>`)}
    <p>${looked.baseUrl}. ${looked.token}.</p>
    <p><b>${looked.tags}${commonUnitsText(looked.units)}</b>${activeAlarmsText(looked.alarms)}.</p>
    <ul class="sites" tabindex="0" aria-label="Sites">${sites.map(
      ({ id, displayName, tags }) =>
        html`<li><span class="of">${id}</span> ${displayName} <span class="of">${tags === null ? "" : `${tags} tags`}</span></li>`,
    )}</ul>
    ${largestSystems.length > 0 && html`<p class="of">Largest systems: ${largestSystems.map(({ code, displayName, tags }) => `${code} ${displayName} (${tags})`).join(", ")}.</p>`}
    ${looked.doubts.map((warning) => html`<p class="warn">${warning}</p>`)}
    <button type="button" class="quiet" onClick=${back}>Another address or token</button>
  </section>`;
}

function commonUnitsText(units) {
  const unitTexts = units.slice(0, 5).map(({ unit, tags }) => `${unit === "" ? "no unit" : unit} ${tags}`);
  return unitTexts.length === 0 ? "" : ` (${unitTexts.join(", ")}${units.length > unitTexts.length ? " …" : ""})`;
}

function activeAlarmsText(count) {
  if (count === null) return "";
  return `, ${count === 1 ? "1 active alarm" : `${count} active alarms`}`;
}

function QuotaPlan({ plan }) {
  const { share, load, fits, lines, change, problem } = plan;
  return html`<section class="plan" role="status">
    <p class=${fits ? "good" : "warn"}><b>${share}</b></p>
    <div class="bar" aria-hidden="true"><i class=${fits ? "" : "over"} style=${{ width: `${Math.min(100, load * 100)}%` }}></i></div>
    <ul>${lines.map((line) => html`<li>${line}</li>`)}</ul>
    ${change !== null && html`<p>The cheapest change: ${change}</p>`}
    ${problem !== null && html`<p class="problem">${problem}</p>`}
  </section>`;
}

function ConfigurationWrittenStep({ written }) {
  const { busy, problem, run } = useSetupRequest();
  const [isStarting, setStarting] = useState(false);
  const startWorker = () =>
    run(async () => {
      await requestSetup("/api/start", {});
      setStarting(true);
      await openWorkerPage();
    });
  return html`<section class="panel">
    <${FocusedHeading}>The configuration is written<//>
    <p><code>${written.file}</code> is the configuration. You can change it. <code>${written.tokenFile}</code> contains the token. Only you can read it.</p>
    <${ProblemText} text=${problem} />
    ${
      isStarting
        ? html`<p role="status">The worker is starting. Its status page appears here in a moment.</p>`
        : html`<button disabled=${busy} onClick=${startWorker}>Start the worker</button>`
    }
    <h3>Next steps</h3>
    <dl class="next">${written.next.map(
      ([command, description]) => html`<div><dt><code>${command}</code></dt><dd>${description}</dd></div>`,
    )}</dl>
  </section>`;
}

const WORKER_RETRY_MS = 500;

async function openWorkerPage() {
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, WORKER_RETRY_MS));
    const healthResponse = await fetch("/healthz", { cache: "no-store" }).catch(() => null);
    if (healthResponse?.ok) return location.assign("/");
  }
}

function SetupPage() {
  // Undefined until the server responds; null if this browser has no session key.
  const [setup, setSetup] = useState(undefined);
  const [problem, setProblem] = useState(null);
  const refreshSetup = async () => {
    try {
      setSetup(await requestSetup("/api/setup"));
    } catch (error) {
      if (error.status === 401) setSetup(null);
      else setProblem(error.message);
    }
  };
  useEffect(() => void refreshSetup(), []);
  const currentStep = setup === null ? 0 : setup?.written ? 3 : setup?.looked ? 2 : 1;
  return html`
    <header><h1><img src="/favicon.svg" alt="" /> Plenum <span class="of">setup</span></h1>
      <ol aria-label="Steps">${["code", "building", "intervals", "done"].map(
        (name, i) =>
          html`<li aria-current=${setup !== undefined && i === currentStep ? "step" : undefined}>${name}</li>`,
      )}</ol></header>
    <main>
      ${setup === undefined && problem === null && html`<p class="loading">Loading …</p>`}
      ${problem !== null && html`<${ProblemText} text=${problem} />`}
      ${setup === null && html`<${CodeForm} done=${refreshSetup} />`}
      ${setup && currentStep === 1 && html`<${AddressForm} done=${(looked) => setSetup({ ...setup, looked })} />`}
      ${
        setup &&
        currentStep === 2 &&
        html`<${SetupChoicesForm} looked=${setup.looked} done=${(written) => setSetup({ ...setup, written })}
          back=${() => setSetup({ ...setup, looked: null })} />`
      }
      ${setup && currentStep === 3 && html`<${ConfigurationWrittenStep} written=${setup.written} />`}
    </main>`;
}

const rootElement = document.getElementById("app");
rootElement.replaceChildren();
render(html`<${SetupPage} />`, rootElement);
