import { html, useEffect, useMemo, useRef, useState } from "/htm.mjs";
import { t, valueText } from "/language.mjs";
import { Choice, NewOrder, Panel, Stale, siteAddress, tagAddress, useStillOrder } from "/shared-components.mjs";
import { Age } from "/worker-clock.mjs";
import { usePolled } from "/worker-requests.mjs";

const PAGE_SIZE = 100;
const EVERY_MS = 4000;
const SEARCH_DELAY_MS = 250;
const SHOW_LABELS = { all: "all", bad: "unreadable", stale: "too old", unread: "never read" };
const COLUMNS = [
  ["name", "name", ""],
  ["value", "value", "n"],
  [null, "unit", ""],
  ["age", "read", "n"],
];

export function listQuery(query) {
  const page = Number.parseInt(query.get("page") ?? "0", 10);
  const names = ["source", "site", "search", "show", "sort"].filter((name) => query.has(name));
  return { page: page > 0 ? page : 0, ...Object.fromEntries(names.map((name) => [name, query.get(name)])) };
}

/** `amend` changes a part of `query`. `sites`: choices of the site filter; absent in the view of one site. */
export function Tags({ query, amend, sites }) {
  const { source, site, search, show = "all", sort = "name", page = 0 } = query;
  const parameters = new URLSearchParams({ show, sort, offset: String(page * PAGE_SIZE), limit: String(PAGE_SIZE) });
  for (const [name, value] of Object.entries({ source, site, search })) if (value) parameters.set(name, value);
  const answer = usePolled(`/api/tags?${parameters}`, null, EVERY_MS);
  const hasSite = sites !== undefined;
  const { total, rows: list, counts } = answer.data ?? { total: 0, rows: [], counts: null };
  const order = useStillOrder(list, (row) => `${row.source} ${row.tag.id}`, answer.of);
  const rows = useMemo(
    () => order.rows.map((row) => html`<${Row} key=${`${row.source} ${row.tag.id}`} row=${row} hasSite=${hasSite} />`),
    [answer.data, order.version, hasSite],
  );
  const first = page * PAGE_SIZE + 1;
  const range = { first: valueText(first), last: valueText(first + list.length - 1), total: valueText(total) };
  const foundText = list.length < total && list.length > 0 ? t("{first}–{last} of {total}", range) : valueText(total);
  const options = Object.entries(SHOW_LABELS).map(([name, words]) => [
    name,
    html`${t(words)} <b>${counts === null ? "" : valueText(counts[name])}</b>`,
  ]);
  const chooseFilter = (name) => amend({ show: name === "all" ? null : name, page: null });
  const searchBox = html`<${Search} value=${search ?? ""} apply=${(words) => amend({ search: words, page: null })} />`;
  return html`<${Panel} kind="values" label=${t("Tags")} title=${t("Tags")} note=${answer.data === null ? null : foundText} extra=${searchBox}>
    <div class="filters">
      <${Choice} label=${t("show")} options=${options} chosen=${show} choose=${chooseFilter} />
      ${hasSite && html`<${SiteChoice} sites=${sites} source=${source} site=${site} amend=${amend} />`}
      <${NewOrder} order=${order} />
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
    ${answer.data !== null && list.length === 0 && html`<p class="quiet">${search || site || show !== "all" ? t("No tag matches.") : t("No tag is known yet.")}</p>`}
    <${Pages} total=${total} page=${page} amend=${amend} />
  <//>`;
}

function Search({ value, apply }) {
  const [text, setText] = useState(value);
  const timer = useRef(null);
  useEffect(() => setText(value), [value]);
  const input = ({ target }) => {
    setText(target.value);
    clearTimeout(timer.current);
    timer.current = setTimeout(apply, SEARCH_DELAY_MS, target.value);
  };
  return html`<input type="search" placeholder=${t("search name or id")} value=${text} aria-label=${t("search tags")}
    onInput=${input} autocomplete="off" spellcheck=${false} />`;
}

function SiteChoice({ sites, source, site, amend }) {
  const chooseSite = (event) => {
    const { source: chosenSource = null, id = null } = sites[Number(event.target.value)] ?? {};
    amend({ source: chosenSource, site: id, page: null });
  };
  const currentIndex = sites.findIndex((each) => each.source === source && String(each.id) === site);
  return html`<select aria-label=${t("site")} onChange=${chooseSite} value=${String(currentIndex)}>
    <option value="-1">${t("all sites")}</option>
    ${sites.map((each, n) => html`<option value=${String(n)}>${each.displayName}</option>`)}
  </select>`;
}

function Column({ by, name, kind, sort, amend }) {
  if (by === null) return html`<th class=${kind}>${t(name)}</th>`;
  const [direction, arrow] = sort === by ? ["ascending", "↑"] : sort === `-${by}` ? ["descending", "↓"] : ["none", "↕"];
  const nextSort = sort === by ? `-${by}` : by;
  return html`<th class=${kind} aria-sort=${direction}>
    <button type="button" onClick=${() => amend({ sort: nextSort === "name" ? null : nextSort, page: null })}>
      ${t(name)} <i class="sorted" aria-hidden="true">${arrow}</i></button></th>`;
}

/** Why a value is not the current value; null if it is. */
export function valueProblem({ quality, stale, time }) {
  if (time === null) return SHOW_LABELS.unread;
  if (quality === "bad") return SHOW_LABELS.bad;
  if (quality === "uncertain") return "uncertain";
  return stale ? SHOW_LABELS.stale : null;
}

function Row({ row, hasSite }) {
  const { tag, source, siteId, site, quality, value, time } = row;
  const words = valueProblem(row);
  return html`<tr class=${quality === "bad" ? "unreadable" : words === null ? "" : "doubted"}>
    <td class="minor of">${tag.id}</td>
    <td><a href=${tagAddress(source, tag.id)} title=${tag.description ?? ""}>${tag.displayName}</a>
      ${words !== null && html` <span class="mark">${t(words)}</span>`}
      ${hasSite && site !== null && html` <a class="of" href=${siteAddress(source, siteId)}>${site}</a>`}</td>
    <td class="n value">${quality === "bad" ? "–" : valueText(value)}</td>
    <td class="unit">${tag.unit ?? ""}</td>
    <td class="n">${time === null ? "–" : html`<${Age} of=${time} />`}</td>
  </tr>`;
}

function Pages({ total, page, amend }) {
  const lastPage = Math.ceil(total / PAGE_SIZE) - 1;
  if (lastPage < 1) return null;
  const turnPage = (by) => amend({ page: page + by === 0 ? null : String(page + by) });
  return html`<nav class="pages" aria-label=${t("pages")}>
    <button type="button" class="mute" disabled=${page === 0} onClick=${() => turnPage(-1)}>← ${t("previous 100")}</button>
    <span class="of">${t("page {page} of {pages}", { page: valueText(page + 1), pages: valueText(lastPage + 1) })}</span>
    <button type="button" class="mute" disabled=${page >= lastPage} onClick=${() => turnPage(1)}>${t("next 100")} →</button>
  </nav>`;
}
