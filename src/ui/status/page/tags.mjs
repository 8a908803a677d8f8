import { usePolled } from "/asking.mjs";
import { Age } from "/clock.mjs";
import { html, useEffect, useMemo, useRef, useState } from "/htm.mjs";
import { t } from "/language.mjs";
import { Stale, siteAddress, tagAddress } from "/parts.mjs";
import { useStillOrder } from "/still.mjs";
import { shown } from "/words.mjs";

/** All tags: searched, filtered and sorted by the worker, a hundred at a time. */

const AT_ONCE = 100;
const EVERY_MS = 4000;
/** Delay in milliseconds between typing and the request. */
const TYPED_MS = 250;
/** Labels of the filters. */
const SHOW = { all: "all", bad: "unreadable", stale: "too old", unread: "never read" };
const COLUMNS = [
  ["name", "name", ""],
  ["value", "value", "n"],
  [null, "unit", ""],
  ["age", "read", "n"],
];

/**
 * `query` is what is asked for ({ source, site, search, show, sort, page }), `amend` changes some of it; `sites` can be
 * chosen from, and is left out where the view is about one.
 */
export function Tags({ query, amend, sites }) {
  const { source, site, search, show = "all", sort = "name", page = 0 } = query;
  const asked = new URLSearchParams({ show, sort, offset: String(page * AT_ONCE), limit: String(AT_ONCE) });
  for (const [name, value] of Object.entries({ source, site, search })) if (value) asked.set(name, value);
  const answer = usePolled(`/api/tags?${asked}`, null, EVERY_MS);
  const hasSite = sites !== undefined;
  const list = answer.data ?? { total: 0, rows: [], counts: null };
  const order = useStillOrder(list.rows, ({ source, tag }) => `${source} ${tag.id}`, answer.of);
  // An equal list is not compared row by row.
  const rows = useMemo(
    () => order.rows.map((row) => html`<${Row} key=${`${row.source} ${row.tag.id}`} row=${row} hasSite=${hasSite} />`),
    [answer.data, order.version, hasSite],
  );
  return html`<section class="panel values" aria-label=${t("Tags")}>
    <h2>${t("Tags")} <${Found} list=${list} page=${page} isRead=${answer.data !== null} />
      <${Search} value=${search ?? ""} found=${(words) => amend({ search: words, page: null })} /></h2>
    <div class="filters">
      <${Show} counts=${list.counts} chosen=${show} choose=${(name) => amend({ show: name === "all" ? null : name, page: null })} />
      ${sites !== undefined && html`<${SiteChoice} sites=${sites} source=${source} site=${site} amend=${amend} />`}
      <span class="moved" role="status">${order.hasMoved && html`<button type="button" class="only" onClick=${order.renew}>${t("new order")}</button>`}</span>
    </div>
    <${Stale} answer=${answer} />
    <div class="scroll" tabindex="0" role="region" aria-label=${t("List of tags")} ...${order.hold}>
      <table>
        <thead><tr><th class="minor">${t("tag")}</th>${COLUMNS.map(
          ([by, name, kind]) => html`<${Column} by=${by} name=${name} kind=${kind} sort=${sort} amend=${amend} />`,
        )}</tr></thead>
        <tbody>${rows}</tbody>
      </table>
    </div>
    ${answer.data !== null && list.rows.length === 0 && html`<p class="quiet">${search || site || show !== "all" ? t("Nothing fits.") : t("No tag is known yet.")}</p>`}
    <${Pages} total=${list.total} page=${page} amend=${amend} />
  </section>`;
}

function Found({ list, page, isRead }) {
  if (!isRead) return null;
  const first = page * AT_ONCE + 1;
  const last = first + list.rows.length - 1;
  return html`<span class="of">${
    list.rows.length < list.total && list.rows.length > 0
      ? t("{first}–{last} of {total}", { first: shown(first), last: shown(last), total: shown(list.total) })
      : shown(list.total)
  }</span>`;
}

function Search({ value, found }) {
  const [typed, type] = useState(value);
  const timer = useRef(null);
  // Going back changes the text without typing.
  useEffect(() => type(value), [value]);
  const input = (event) => {
    const words = event.target.value;
    type(words);
    clearTimeout(timer.current);
    timer.current = setTimeout(found, TYPED_MS, words);
  };
  return html`<input type="search" placeholder=${t("search name or id")} value=${typed} aria-label=${t("search tags")}
    onInput=${input} autocomplete="off" spellcheck=${false} />`;
}

function Show({ counts, chosen, choose }) {
  return html`<span class="chips" role="group" aria-label=${t("show")}>${Object.entries(SHOW).map(
    ([
      name,
      words,
    ]) => html`<button type="button" class="chip" aria-pressed=${name === chosen} onClick=${() => choose(name)}>
      ${t(words)} <b>${counts === null ? "" : shown(counts[name])}</b></button>`,
  )}</span>`;
}

function SiteChoice({ sites, source, site, amend }) {
  const choose = (event) => {
    const place = sites[Number(event.target.value)];
    amend({ source: place?.source ?? null, site: place === undefined ? null : String(place.id), page: null });
  };
  const chosen = sites.findIndex((each) => each.source === source && String(each.id) === site);
  return html`<select aria-label=${t("site")} onChange=${choose} value=${String(chosen)}>
    <option value="-1">${t("all sites")}</option>
    ${sites.map((each, n) => html`<option value=${String(n)}>${each.displayName}</option>`)}
  </select>`;
}

function Column({ by, name, kind, sort, amend }) {
  if (by === null) return html`<th class=${kind}>${t(name)}</th>`;
  const isUp = sort === by;
  const isDown = sort === `-${by}`;
  const next = isUp ? `-${by}` : by;
  return html`<th class=${kind} aria-sort=${isUp ? "ascending" : isDown ? "descending" : "none"}>
    <button type="button" onClick=${() => amend({ sort: next === "name" ? null : next, page: null })}>
      ${t(name)} <i class="sorted" aria-hidden="true">${isUp ? "↑" : isDown ? "↓" : "↕"}</i></button></th>`;
}

/** Why a value cannot be taken for the present; null where it can. */
export function trouble({ quality, stale, time }) {
  if (time === null) return SHOW.unread;
  if (quality === "bad") return SHOW.bad;
  if (quality === "uncertain") return "uncertain";
  return stale ? SHOW.stale : null;
}

function Row({ row, hasSite }) {
  const { tag, source, siteId } = row;
  const what = trouble(row);
  return html`<tr class=${row.quality === "bad" ? "unreadable" : what === null ? "" : "doubted"}>
    <td class="minor of">${tag.id}</td>
    <td><a href=${tagAddress(source, tag.id)} title=${tag.description ?? ""}>${tag.displayName}</a>
      ${what !== null && html` <span class="mark">${t(what)}</span>`}
      ${hasSite && row.site !== null && html` <a class="of" href=${siteAddress(source, siteId)}>${row.site}</a>`}</td>
    <td class="n value">${row.quality === "bad" ? "–" : shown(row.value)}</td>
    <td class="unit">${tag.unit ?? ""}</td>
    <td class="n">${row.time === null ? "–" : html`<${Age} of=${row.time} />`}</td>
  </tr>`;
}

function Pages({ total, page, amend }) {
  const last = Math.ceil(total / AT_ONCE) - 1;
  if (last < 1) return null;
  const turn = (by) => amend({ page: page + by === 0 ? null : String(page + by) });
  return html`<nav class="pages" aria-label=${t("pages")}>
    <button type="button" class="mute" disabled=${page === 0} onClick=${() => turn(-1)}>← ${t("previous 100")}</button>
    <span class="of">${t("page {page} of {pages}", { page: shown(page + 1), pages: shown(last + 1) })}</span>
    <button type="button" class="mute" disabled=${page >= last} onClick=${() => turn(1)}>${t("next 100")} →</button>
  </nav>`;
}

/** Parameters of the list from the address. */
export function wishOf(query) {
  const page = Number.parseInt(query.get("page") ?? "0", 10);
  const wish = { page: page > 0 ? page : 0 };
  for (const name of ["source", "site", "search", "show", "sort"]) {
    const value = query.get(name);
    if (value !== null) wish[name] = value;
  }
  return wish;
}
