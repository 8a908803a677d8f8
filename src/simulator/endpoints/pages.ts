import { invalidReply, listReply } from "../envelope.ts";
import type { SimReply } from "../exchange.ts";
import type { Call } from "./endpoint.ts";

/** Default page size of all lists: interface, Limits. */
const PER_PAGE = 100;

export interface Page {
  readonly page: number;
  readonly perPage: number;
}

export interface PageRule {
  readonly max: number;
  readonly overMax: "refuse" | "clamp";
}

/** Reads page and per_page; a page that is no positive number counts as the first, as paginators do. */
export function readPage({ query, request }: Call, { max, overMax }: PageRule): Page {
  const asked = query.integer("per_page") ?? PER_PAGE;
  if (asked < 1) query.refuse("per_page", "The per page field must be at least 1.");
  if (asked > max && overMax === "refuse") {
    query.refuse("per_page", `The per page field must not be greater than ${max}.`);
  }
  const page = Number(request.query.get("page") ?? "1");
  return { page: Number.isSafeInteger(page) && page > 0 ? page : 1, perPage: Math.min(asked, max) };
}

/** One page of the rows, or the problems that were found in the query. */
export function pageOf<T>(
  call: Call,
  { page, perPage }: Page,
  rows: () => readonly T[],
  record: (row: T) => unknown,
): SimReply {
  const { options } = call.scene;
  if (call.query.problems.length > 0) return invalidReply(call.query.problems);
  const origin = options.public_url ?? `http://${call.request.headers.host ?? "localhost"}`;
  return listReply(rows(), record, {
    address: `${origin.replace(/\/$/, "")}${call.request.path}`,
    query: call.request.query,
    page,
    perPage,
    links: options.lists.links,
    emptyMeta: options.lists.empty_meta,
  });
}

/** Case does not matter; no text matches everything. */
export function contains(search: string | undefined, ...texts: readonly (string | null)[]): boolean {
  if (search === undefined) return true;
  const wanted = search.toLowerCase();
  return texts.some((text) => text?.toLowerCase().includes(wanted) ?? false);
}
