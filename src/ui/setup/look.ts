import { ConfigError, meaningOf, Retryable } from "../../core/errors/errors.ts";
import type { System, Tag } from "../../core/model/building.ts";
import type { Page, Source } from "../../engine/source/source.ts";
import { type Looks, type SeenBuilding, seenBuilding } from "./seen.ts";

/** Lists that one look asks for at most, besides token and alarms: what the list pace lets pass without a wait. */
const LISTS = 18;
/** Sites whose systems are listed: names to recognise the building by, and no more. */
const SYSTEM_LISTS = 3;

/**
 * Reads a building through its lists, which use no quota: the token, active alarms, the first tags of each site, further tags
 * up to `LISTS`. Throws ConfigError for a token that can follow nothing.
 */
export async function look(
  source: Source,
  signal: AbortSignal,
  told: (text: string) => void = () => undefined,
): Promise<SeenBuilding> {
  const token = await source.me(signal);
  const may = (ability: string) => token.abilities.includes(ability);
  if (token.sites.length === 0)
    throw new ConfigError(`The token "${token.name}" sees no site, so there is nothing to follow.`, {
      hint: "Make one in your user profile at the service that is scoped to the sites you want.",
    });
  if (!may("read:alarms") && !may("read:tags")) {
    const has = token.abilities.length === 0 ? "nothing" : token.abilities.join(", ");
    throw new ConfigError(`The token "${token.name}" may read neither alarms nor tags; it may: ${has}.`, {
      hint: "Make one in your user profile at the service with read:alarms and read:tags.",
    });
  }
  told("Looking at alarms");
  const alarms = may("read:alarms") ? await firstOf(source.alarms({ status: "active" }, signal)) : null;
  const siteIds = token.sites.map(({ id }) => id);
  const tagsOf: Looks["tagsOf"] = may("read:tags") ? await lookAtTags(source, siteIds, signal, told) : new Map();
  const left = Math.min(SYSTEM_LISTS, LISTS - tagsOf.size);
  const systems = may("read:systems") ? await lookAtSystems(source, siteIds.slice(0, left), signal) : [];
  return seenBuilding({ token, tagsOf, systems, alarms });
}

async function lookAtTags(
  source: Source,
  siteIds: readonly number[],
  signal: AbortSignal,
  told: (text: string) => void,
): Promise<Looks["tagsOf"]> {
  const found = new Map<number, { total: number; listed: Tag[] }>();
  const more: { readonly id: number; readonly pages: AsyncIterator<Page<Tag>> }[] = [];
  let asked = 0;
  const take = (id: number, page: Page<Tag>) => {
    const site = found.get(id) ?? { total: 0, listed: [] };
    site.listed.push(...page.items);
    site.total = Math.max(page.total ?? 0, site.listed.length);
    found.set(id, site);
    told(`Looking at tags: ${found.size} of ${siteIds.length} sites`);
  };
  for (const id of siteIds) {
    if (asked >= LISTS) break;
    const pages = source.tags({ siteId: id }, signal)[Symbol.asyncIterator]();
    asked += 1;
    const first = await pages.next().catch((error: unknown) => {
      // The user may lack a permission at one site; the other sites still count.
      if (!isForbidden(error) || siteIds.length === 1) throw error;
      return { done: true } as const;
    });
    found.set(id, { total: 0, listed: [] });
    if (first.done === true) continue;
    take(id, first.value);
    if (first.value.more) more.push({ id, pages });
  }
  for (const { id, pages } of more) {
    while (asked < LISTS - SYSTEM_LISTS) {
      const next = await pages.next();
      asked += 1;
      if (next.done === true) break;
      take(id, next.value);
    }
    await pages.return?.();
  }
  return found;
}

function isForbidden(error: unknown): boolean {
  const failure = meaningOf(error);
  return failure.kind === "config" && failure.reason === "forbidden";
}

async function lookAtSystems(
  source: Source,
  siteIds: readonly number[],
  signal: AbortSignal,
): Promise<readonly System[]> {
  const found: System[] = [];
  for (const siteId of siteIds) {
    try {
      found.push(...(await firstOf(source.systems({ siteId }, signal))).listed);
    } catch (error) {
      // Besides the ability it takes a permission of the user; without it there are just no names.
      if (!isForbidden(error)) throw error;
    }
  }
  return found;
}

async function firstOf<T>(pages: AsyncIterable<Page<T>>) {
  for await (const { items, total } of pages) return { total: Math.max(total ?? 0, items.length), listed: items };
  return { total: 0, listed: [] };
}

/** Error message for a person who has no configuration yet. */
export function lookTrouble(error: unknown, baseUrl: string): Error {
  const failure = meaningOf(error);
  if (failure.kind === "config" && failure.reason === "unauthenticated")
    return new ConfigError(`The service at ${baseUrl} does not accept this token.`, {
      reason: "unauthenticated",
      hint: "Make a new one in your user profile there (API token), and copy all of it.",
      cause: error,
    });
  // Only the first question can be meant: what lists without a record of the token is no such service.
  if (failure.kind === "malformed" || (failure.kind === "config" && /^me: 404/.test(failure.message)))
    return new ConfigError(`Something answers at ${baseUrl}, but it is not the monitoring service.`, {
      hint: "The address is that of the service alone, such as https://monitoring.example.com.",
      cause: error,
    });
  // There is no configuration yet in which it could be looked up.
  const said = (text: string) => text.replaceAll(/`?base_url`?/g, "the address");
  const options = { cause: error, ...(failure.hint === undefined ? {} : { hint: said(failure.hint) }) };
  if (failure.kind === "config") return new ConfigError(said(failure.message), options);
  return failure.kind === "retryable" ? new Retryable(said(failure.message), options) : failure;
}
