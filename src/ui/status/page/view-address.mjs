import { useEffect, useState } from "/htm.mjs";

/** The address contains the view, so that it can be shared: `#/tag/<source>/<id>?span=24h`. */

const listeners = new Set();

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** `view` is empty for the overview. Links in messages of connectors have no slash in front. */
function parse(hash) {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?");
  const [view = "", ...parts] = path.split("/").map(decode);
  return { view, parts, query: new URLSearchParams(query) };
}

/** Address of a view. Null, undefined and empty values of `query` are left out. */
export function viewAddress(view, parts = [], query = {}) {
  const path = [view, ...parts.map((part) => encodeURIComponent(part))].join("/");
  const entries = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return `#/${path}${entries.length === 0 ? "" : `?${new URLSearchParams(entries)}`}`;
}

/** Changes parameters of the current view, without an entry in the browser's history. */
export function amend(query) {
  const { view, parts, query: last } = parse(location.hash);
  history.replaceState(history.state, "", viewAddress(view, parts, { ...Object.fromEntries(last), ...query }));
  for (const listener of listeners) listener();
}

const positions = new Map();
history.scrollRestoration = "manual";

/** Scrolls a new view to its top, and a view of the browser's history to its last position. */
function restoreScroll(from) {
  positions.set(from, scrollY);
  const top = history.state?.seen === true ? (positions.get(location.hash) ?? 0) : 0;
  history.replaceState({ seen: true }, "");
  requestAnimationFrame(() => scrollTo(0, top));
}

export function useAddress() {
  const [hash, setHash] = useState(location.hash);
  useEffect(() => {
    let lastHash = location.hash;
    history.replaceState({ seen: true }, "");
    const updateHash = () => setHash(location.hash);
    const onHashChange = () => {
      restoreScroll(lastHash);
      lastHash = location.hash;
      updateHash();
    };
    listeners.add(updateHash);
    addEventListener("hashchange", onHashChange);
    return () => {
      listeners.delete(updateHash);
      removeEventListener("hashchange", onHashChange);
    };
  }, []);
  return parse(hash);
}
