import { useEffect, useState } from "/htm.mjs";

/** The address of the page contains the view, so that it can be shared: `#/tag/<source>/<id>?span=24h`. */

const addressListeners = new Set();

function decodePathPart(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** `view` is empty for the overview. Links in messages of connectors have no slash after the hash. */
function parseViewHash(hash) {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?");
  const [view = "", ...parts] = path.split("/").map(decodePathPart);
  return { view, parts, query: new URLSearchParams(query) };
}

/** Builds the address of a view. Null, undefined and empty values of `query` are left out. */
export function viewAddress(view, parts = [], query = {}) {
  const viewPath = [view, ...parts.map((part) => encodeURIComponent(part))].join("/");
  const parameters = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return `#/${viewPath}${parameters.length === 0 ? "" : `?${new URLSearchParams(parameters)}`}`;
}

/** Changes parameters of the view without a new entry in the browser's history. */
export function amendViewQuery(query) {
  const { view, parts, query: currentQuery } = parseViewHash(location.hash);
  history.replaceState(history.state, "", viewAddress(view, parts, { ...Object.fromEntries(currentQuery), ...query }));
  for (const listener of addressListeners) listener();
}

const scrollPositions = new Map();
history.scrollRestoration = "manual";

/** Scrolls a new view to its top, and a view from the browser's history to its previous scroll position. */
function restoreScrollPosition(previousHash) {
  scrollPositions.set(previousHash, scrollY);
  const scrollTop = history.state?.seen === true ? (scrollPositions.get(location.hash) ?? 0) : 0;
  history.replaceState({ seen: true }, "");
  requestAnimationFrame(() => scrollTo(0, scrollTop));
}

export function useViewAddress() {
  const [hash, setHash] = useState(location.hash);
  useEffect(() => {
    let lastHash = location.hash;
    history.replaceState({ seen: true }, "");
    const updateViewHash = () => setHash(location.hash);
    const onHashChange = () => {
      restoreScrollPosition(lastHash);
      lastHash = location.hash;
      updateViewHash();
    };
    addressListeners.add(updateViewHash);
    addEventListener("hashchange", onHashChange);
    return () => {
      addressListeners.delete(updateViewHash);
      removeEventListener("hashchange", onHashChange);
    };
  }, []);
  return parseViewHash(hash);
}
