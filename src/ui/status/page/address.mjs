import { useEffect, useState } from "/htm.mjs";

/** The address contains the view, so that it can be shared: `#/tag/<source>/<id>?span=24h`. */

const listeners = new Set();

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** `view` is empty for the overview. A link of a message has no slash in front. */
export function parsed(hash) {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?");
  const [view = "", ...parts] = path.split("/").map(decoded);
  return { view, parts, query: new URLSearchParams(query) };
}

/** An address for a link; what is null, undefined or empty is left out of `query`. */
export function to(view, parts = [], query = {}) {
  const path = [view, ...parts.map((part) => encodeURIComponent(part))].join("/");
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return `#/${path}${given.length === 0 ? "" : `?${new URLSearchParams(given)}`}`;
}

const told = () => {
  for (const each of listeners) each();
};

/** Other words of the same view: the way back leads past them. */
export function amend(query) {
  const { view, parts, query: last } = parsed(location.hash);
  history.replaceState(history.state, "", to(view, parts, { ...Object.fromEntries(last), ...query }));
  told();
}

const scrolled = new Map();
history.scrollRestoration = "manual";

/** A new view begins at its top, and one that is returned to where it was left. */
function placed(from) {
  scrolled.set(from, scrollY);
  const isReturn = history.state?.seen === true;
  history.replaceState({ seen: true }, "");
  const top = isReturn ? (scrolled.get(location.hash) ?? 0) : 0;
  requestAnimationFrame(() => scrollTo(0, top));
}

export function useAddress() {
  const [hash, set] = useState(location.hash);
  useEffect(() => {
    let last = location.hash;
    history.replaceState({ seen: true }, "");
    const change = () => set(location.hash);
    const move = () => {
      placed(last);
      last = location.hash;
      change();
    };
    listeners.add(change);
    addEventListener("hashchange", move);
    return () => {
      listeners.delete(change);
      removeEventListener("hashchange", move);
    };
  }, []);
  return parsed(hash);
}
