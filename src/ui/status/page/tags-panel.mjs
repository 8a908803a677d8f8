import {
  ChoiceButtons,
  NewOrderButton,
  Panel,
  StaleWarning,
  siteAddress,
  tagAddress,
  useStableRowOrder,
} from "/components.mjs";
import { valueText } from "/formats.mjs";
import { html, useEffect, useMemo, useRef, useState } from "/htm.mjs";
import { usePolledData } from "/status-api.mjs";
import { Age } from "/worker-clock.mjs";

const PAGE_SIZE = 100;
const TAGS_POLL_MS = 4000;
const TAG_SEARCH_DELAY_MS = 250;
const TAG_FILTER_LABELS = { all: "all", bad: "unreadable", stale: "stale", unread: "never read" };
const STALE_REASON_TEXTS = {
  "not-scheduled": "stale: not read in time",
  "out-of-scope": "stale: the token does not see the site",
  "no-ability": "stale: the token may not read tags",
  quarantined: "stale: the tag is in quarantine",
  "gateway-offline": "stale: the gateway is offline",
  "source-unavailable": "stale: the service did not answer",
};
const TAG_TABLE_COLUMNS = [
  ["name", "name", ""],
  ["value", "value", "n"],
  [null, "unit", ""],
  ["age", "read", "n"],
];

export function tagListQuery(query) {
  const page = Number.parseInt(query.get("page") ?? "0", 10);
  const parameterNames = ["source", "site", "search", "show", "sort"].filter((name) => query.has(name));
  return { page: page > 0 ? page : 0, ...Object.fromEntries(parameterNames.map((name) => [name, query.get(name)])) };
}

/** List of tags. `amend` changes a part of `query`. `sites`: choices of the site filter; absent in a site's view. */
export function TagsPanel({ query, amend, sites }) {
  const { source, site, search, show = "all", sort = "name", page = 0 } = query;
  const parameters = new URLSearchParams({ show, sort, offset: String(page * PAGE_SIZE), limit: String(PAGE_SIZE) });
  for (const [name, value] of Object.entries({ source, site, search })) if (value) parameters.set(name, value);
  const response = usePolledData(`/api/tags?${parameters}`, null, TAGS_POLL_MS);
  const showsSite = sites !== undefined;
  const { total, rows: pageRows, counts } = response.data ?? { total: 0, rows: [], counts: null };
  const order = useStableRowOrder(pageRows, (row) => `${row.source} ${row.tag.id}`, response.of);
  const tagRows = useMemo(
    () =>
      order.rows.map((row) => html`<${TagRow} key=${`${row.source} ${row.tag.id}`} row=${row} hasSite=${showsSite} />`),
    [response.data, order.version, showsSite],
  );
  const firstRowNumber = page * PAGE_SIZE + 1;
  const foundTagsText =
    pageRows.length < total && pageRows.length > 0
      ? `${valueText(firstRowNumber)}–${valueText(firstRowNumber + pageRows.length - 1)} of ${valueText(total)}`
      : valueText(total);
  const filterOptions = Object.entries(TAG_FILTER_LABELS).map(([name, label]) => [
    name,
    html`${label} <b>${counts === null ? "" : valueText(counts[name])}</b>`,
  ]);
  const chooseTagFilter = (name) => amend({ show: name === "all" ? null : name, page: null });
  const searchBox = html`<${TagSearchBox} value=${search ?? ""} apply=${(searchText) => amend({ search: searchText, page: null })} />`;
  return html`<${Panel} kind="values" label="Tags" title="Tags" note=${response.data === null ? null : foundTagsText} extra=${searchBox}>
    <div class="filters">
      <${ChoiceButtons} label="show" options=${filterOptions} chosen=${show} choose=${chooseTagFilter} />
      ${showsSite && html`<${SiteFilter} sites=${sites} source=${source} site=${site} amend=${amend} />`}
      <${NewOrderButton} order=${order} />
    </div>
    <${StaleWarning} answer=${response} />
    <div class="scroll" tabindex="0" role="region" aria-label="List of tags" ...${order.hold}>
      <table>
        <thead><tr><th class="minor">tag</th>${TAG_TABLE_COLUMNS.map(
          ([sortKey, name, kind]) =>
            html`<${ColumnHeading} by=${sortKey} name=${name} kind=${kind} sort=${sort} amend=${amend} />`,
        )}</tr></thead>
        <tbody>${tagRows}</tbody>
      </table>
    </div>
    ${response.data !== null && pageRows.length === 0 && html`<p class="quiet">${search || site || show !== "all" ? "No tag matches." : "No tag is known yet."}</p>`}
    <${PageButtons} total=${total} page=${page} amend=${amend} />
  <//>`;
}

function TagSearchBox({ value, apply }) {
  const [searchText, setSearchText] = useState(value);
  const searchTimer = useRef(null);
  useEffect(() => setSearchText(value), [value]);
  const onSearchInput = ({ target }) => {
    setSearchText(target.value);
    clearTimeout(searchTimer.current);
    searchTimer.current = setTimeout(apply, TAG_SEARCH_DELAY_MS, target.value);
  };
  return html`<input type="search" placeholder="search name or id" value=${searchText} aria-label="search tags"
    onInput=${onSearchInput} autocomplete="off" spellcheck=${false} />`;
}

function SiteFilter({ sites, source, site, amend }) {
  const chooseSite = (event) => {
    const { source: chosenSource = null, id = null } = sites[Number(event.target.value)] ?? {};
    amend({ source: chosenSource, site: id, page: null });
  };
  const currentSiteIndex = sites.findIndex((candidate) => candidate.source === source && String(candidate.id) === site);
  return html`<select aria-label="site" onChange=${chooseSite} value=${String(currentSiteIndex)}>
    <option value="-1">all sites</option>
    ${sites.map((option, n) => html`<option value=${String(n)}>${option.displayName}</option>`)}
  </select>`;
}

function ColumnHeading({ by, name, kind, sort, amend }) {
  if (by === null) return html`<th class=${kind}>${name}</th>`;
  const [direction, arrow] = sort === by ? ["ascending", "↑"] : sort === `-${by}` ? ["descending", "↓"] : ["none", "↕"];
  const nextSortOrder = sort === by ? `-${by}` : by;
  return html`<th class=${kind} aria-sort=${direction}>
    <button type="button" onClick=${() => amend({ sort: nextSortOrder === "name" ? null : nextSortOrder, page: null })}>
      ${name} <i class="sorted" aria-hidden="true">${arrow}</i></button></th>`;
}

/** Reason why a value is not current; null for a current value. */
export function valueProblem({ quality, staleReason, time }) {
  if (time === null) return TAG_FILTER_LABELS.unread;
  if (quality === "bad") return TAG_FILTER_LABELS.bad;
  if (quality === "uncertain") return "uncertain";
  return quality === "stale" ? (STALE_REASON_TEXTS[staleReason] ?? TAG_FILTER_LABELS.stale) : null;
}

function TagRow({ row, hasSite }) {
  const { tag, source, siteId, site, quality, value, time } = row;
  const valueProblemText = valueProblem(row);
  return html`<tr class=${quality === "bad" ? "unreadable" : valueProblemText === null ? "" : "doubted"}>
    <td class="minor of">${tag.id}</td>
    <td><a href=${tagAddress(source, tag.id)} title=${tag.description ?? ""}>${tag.displayName}</a>
      ${tag.alias !== undefined && html` <span class="of">${tag.alias}${hasSite ? " ·" : ""}</span>`}
      ${valueProblemText !== null && html` <span class="mark">${valueProblemText}</span>`}
      ${hasSite && site !== null && html` <a class="of" href=${siteAddress(source, siteId)}>${site}</a>`}</td>
    <td class="n value">${value === null ? "–" : valueText(value)}</td>
    <td class="unit">${tag.unit ?? ""}</td>
    <td class="n">${time === null ? "–" : html`<${Age} of=${time} />`}</td>
  </tr>`;
}

function PageButtons({ total, page, amend }) {
  const lastPage = Math.ceil(total / PAGE_SIZE) - 1;
  if (lastPage < 1) return null;
  const turnPage = (pageStep) => amend({ page: page + pageStep === 0 ? null : String(page + pageStep) });
  return html`<nav class="pages" aria-label="pages">
    <button type="button" class="mute" disabled=${page === 0} onClick=${() => turnPage(-1)}>← previous 100</button>
    <span class="of">page ${valueText(page + 1)} of ${valueText(lastPage + 1)}</span>
    <button type="button" class="mute" disabled=${page >= lastPage} onClick=${() => turnPage(1)}>next 100 →</button>
  </nav>`;
}
