/** The page's words in the reader's language. The English sentence is the key; `{name}` is what is put into it. */

export const LANGUAGES = { en: "English", nb: "Norsk" };
const REMEMBERED = "plenum.language";

let language = "en";
let table = {};
/** Region for numbers and times: `en` would put the month before the day. */
let region = "en-GB";

export const spoken = () => language;
export const regionOf = () => region;

/** Stored language; null when the browser stores nothing. */
function remembered() {
  try {
    return localStorage.getItem(REMEMBERED);
  } catch {
    return null;
  }
}

/** The language chosen last, otherwise the browser's first supported language. */
export function preferred() {
  const chosen = remembered();
  if (chosen !== null && chosen in LANGUAGES) return chosen;
  for (const each of navigator.languages) {
    const name = each.slice(0, 2).toLowerCase();
    if (["nb", "nn", "no"].includes(name)) return "nb";
    if (name === "en") return "en";
  }
  return "en";
}

/** The table of another language is loaded only for those who read it. */
export async function speak(wanted) {
  table = wanted === "nb" ? (await import("/norwegian.mjs")).NORWEGIAN : {};
  language = wanted;
  region = wanted === "nb" ? "nb-NO" : "en-GB";
  document.documentElement.lang = wanted;
}

export function remember(wanted) {
  try {
    localStorage.setItem(REMEMBERED, wanted);
  } catch {
    // Then it is asked for again at the next visit.
  }
}

/** A sentence of the page; one that the table does not have stays English. */
export function t(text, values = {}) {
  return (table[text] ?? text).replaceAll(/\{(\w+)\}/g, (whole, name) =>
    Object.hasOwn(values, name) ? String(values[name]) : whole,
  );
}
