import { html, render, useEffect, useRef, useState } from "/htm.mjs";
import { LANGUAGES, preferred, remember, speak, spoken, t } from "/language.mjs";
import { Wishes } from "/wishes.mjs";

/**
 * The setup, step by step: code, address and token, choices, done. Texts of the service are only used in text nodes.
 */

const OTHER = { en: "nb", nb: "en" };

/** Rejects with one sentence; `status` is the answer's, 0 where none came. */
async function ask(path, body) {
  let response;
  try {
    response = await fetch(path, {
      method: body === undefined ? "GET" : "POST",
      headers: { "content-type": "application/json", "x-plenum": "status-page" },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
  } catch {
    const gone = t("Plenum does not answer any more; look at the terminal.");
    throw Object.assign(new Error(gone), { status: 0 });
  }
  if (response.status === 204) return null;
  const answer = await response.json().catch(() => ({}));
  if (response.ok) return answer;
  throw Object.assign(new Error(answer.message ?? t("This did not work.")), { status: response.status });
}

/** The running request and the last error; one request at a time. */
function useAsking() {
  const [state, set] = useState({ busy: false, problem: null });
  const run = async (work) => {
    set({ busy: true, problem: null });
    try {
      await work();
      set({ busy: false, problem: null });
    } catch (error) {
      set({ busy: false, problem: error.message });
    }
  };
  return { ...state, run };
}

/** Message of the service or the worker; English unless the table has a translation. */
function Problem({ text }) {
  return html`<p class="problem" role="alert">${text === null ? "" : inLanguage(text)}</p>`;
}

function inLanguage(text) {
  const translated = t(text);
  return translated === text && spoken() !== "en" ? html`<span lang="en">${text}</span>` : translated;
}

/** The heading of a step gets the focus, so that keyboard and screen reader are where the page is. */
function Heading({ children }) {
  const self = useRef(null);
  useEffect(() => self.current?.focus(), []);
  return html`<h2 ref=${self} tabindex="-1">${children}</h2>`;
}

function Code({ done }) {
  const { busy, problem, run } = useAsking();
  const enter = (event) => {
    event.preventDefault();
    const code = new FormData(event.target).get("code");
    void run(async () => {
      await ask("/api/code", { code });
      await done();
    });
  };
  return html`<form class="panel" onSubmit=${enter}>
    <${Heading}>${t("Who are you?")}<//>
    <p>${t("The code stands in the terminal in which this was started:")} <code>plenum run --setup</code></p>
    <label for="code">${t("Code")}</label>
    <input id="code" name="code" autocomplete="off" autocapitalize="characters" spellcheck=${false} required placeholder="XXXX-XXXX" />
    <${Problem} text=${problem} />
    <button disabled=${busy}>${t("Go on")}</button>
  </form>`;
}

function Address({ done }) {
  const { busy, problem, run } = useAsking();
  const look = (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    const asked = {
      address: form.get("address"),
      token: form.get("token"),
      allowPlainHttp: form.get("plain") === "on",
    };
    void run(async () => done(await ask("/api/look", asked)));
  };
  return html`<form class="panel" onSubmit=${look}>
    <${Heading}>${t("Where is the building?")}<//>
    <label for="address">${t("Address of the monitoring service")}</label>
    <input id="address" name="address" type="text" inputmode="url" autocomplete="off" spellcheck=${false} required placeholder="https://monitoring.example.com" />
    <label for="token">${t("Access token")}</label>
    <input id="token" name="token" type="password" autocomplete="off" required aria-describedby="token-help" />
    <p id="token-help" class="of">${t("You make it in your user profile at the service. It is kept in a file of its own, readable by you only.")}</p>
    <label class="check"><input name="plain" type="checkbox" /> ${t("In a test network: let the token travel readable, over http://")}</label>
    <${Problem} text=${problem} />
    <button disabled=${busy}>${busy ? t("Looking …") : t("Look at the building")}</button>
    <p class="of" role="status">${busy ? t("Looking at alarms and tags; a large building takes half a minute.") : ""}</p>
  </form>`;
}

function Done({ written }) {
  const { busy, problem, run } = useAsking();
  const [isStarting, setStarting] = useState(false);
  const start = () =>
    run(async () => {
      await ask("/api/start", {});
      setStarting(true);
      await workerIsThere();
    });
  return html`<section class="panel">
    <${Heading}>${t("The configuration is written")}<//>
    <p><code>${written.file}</code> ${t("is yours to change.")} <code>${written.tokenFile}</code> ${t("holds the token, readable by you only.")}</p>
    <${Problem} text=${problem} />
    ${
      isStarting
        ? html`<p role="status">${t("The worker starts; its page comes here in a moment.")}</p>`
        : html`<button disabled=${busy} onClick=${start}>${t("Start the worker")}</button>`
    }
    <h3>${t("What comes next")}</h3>
    <dl class="next">${written.next.map(
      ([command, what]) => html`<div><dt><code>${command}</code></dt><dd>${t(what)}</dd></div>`,
    )}</dl>
  </section>`;
}

const TRY_EVERY_MS = 500;

/** Loads the worker's page as soon as it answers where this one was. */
async function workerIsThere() {
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, TRY_EVERY_MS));
    const health = await fetch("/healthz", { cache: "no-store" }).catch(() => null);
    if (health?.ok) return location.assign("/");
  }
}

function Page() {
  // Undefined until it is known whether this browser has the key.
  const [known, setKnown] = useState(undefined);
  const [problem, setProblem] = useState(null);
  const [language, setLanguage] = useState(spoken());
  const refresh = async () => {
    try {
      setKnown(await ask("/api/setup"));
    } catch (error) {
      if (error.status === 401) setKnown(null);
      else setProblem(error.message);
    }
  };
  useEffect(() => void refresh(), []);
  useEffect(() => {
    document.title = t("Set up Plenum");
  }, [language]);
  const choose = async () => {
    const wanted = OTHER[spoken()];
    remember(wanted);
    await speak(wanted);
    setLanguage(wanted);
  };
  const other = OTHER[language];
  const step = known === null ? 0 : known?.written ? 3 : known?.looked ? 2 : 1;
  return html`
    <header><h1><img src="/favicon.svg" alt="" /> Plenum <span class="of">${t("setup")}</span></h1>
      <ol aria-label=${t("Steps")}>${[t("code"), t("building"), t("wishes"), t("done")].map(
        (name, i) => html`<li aria-current=${known !== undefined && i === step ? "step" : undefined}>${name}</li>`,
      )}</ol>
      <button type="button" class="quiet" lang=${other} onClick=${choose}>${LANGUAGES[other]}</button></header>
    <main>
      ${known === undefined && problem === null && html`<p class="loading">${t("Loading …")}</p>`}
      ${problem !== null && html`<${Problem} text=${problem} />`}
      ${known === null && html`<${Code} done=${refresh} />`}
      ${known && step === 1 && html`<${Address} done=${(looked) => setKnown({ ...known, looked })} />`}
      ${
        known &&
        step === 2 &&
        html`<${Wishes} looked=${known.looked} ask=${ask} written=${(written) => setKnown({ ...known, written })}
          back=${() => setKnown({ ...known, looked: null })} Heading=${Heading} Problem=${Problem} />`
      }
      ${known && step === 3 && html`<${Done} written=${known.written} />`}
    </main>`;
}

await speak(preferred());
const root = document.getElementById("app");
root.replaceChildren();
render(html`<${Page} />`, root);
