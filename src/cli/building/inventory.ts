import type { Command } from "commander";
import { ConfigError, meaningOf } from "../../core/errors/errors.ts";
import type { Gateway, Host, Site, System, Tag } from "../../core/model/building.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import { durationText } from "../../core/values/duration.ts";
import type { Page } from "../../engine/source/source.ts";
import { documentSet } from "../../engine/store/store.ts";
import type { Listed, StoredPoll } from "../../engine/sync/snapshot.ts";
import type { Reader } from "../../ui/operator/remote.ts";
import { type CliContext, chooseSource, collect, parseInteger } from "../shell/context.ts";
import { readStateIfAny, type WhichState } from "../shell/state-access.ts";
import type { Terminal } from "../shell/terminal.ts";

/** Kinds of things that the service lists for each site. */
interface Things {
  readonly tag: Tag;
  readonly gateway: Gateway;
  readonly host: Host;
  readonly system: System;
}
export type Kind = keyof Things;

export interface InventoryOptions {
  readonly source?: string;
  readonly site?: number;
  readonly search?: string;
}

export interface Located<T> {
  readonly value: T;
  readonly siteId: number;
  readonly site: string;
}

export interface Inventory<T> {
  readonly source: string;
  readonly items: readonly Located<T>[];
  /** UTC time of the worker's last successful listing; null for a list that the service sent just now. */
  readonly listedAt: string | null;
}

export function inventoryOptions(command: Command): Command {
  return command
    .option("--source <name>", "which source, when there are several")
    .option("--site <id>", "only this site", parseInteger)
    .option("--search <text>", "only what contains this");
}

/**
 * Returns the inventory in the worker's state. Before the first listing it asks the service, whose lists cost no quota.
 * `ask` always asks the service, and may narrow the list.
 */
export async function inventoryOf<K extends Kind>(
  context: CliContext,
  kind: K,
  options: InventoryOptions,
  ask?: { readonly systemId?: string },
): Promise<Inventory<Things[K]>> {
  const config = context.config();
  const [source] = chooseSource(config, options.source);
  const held = ask === undefined ? await fromState<Things[K]>(config, source, kind, options) : null;
  if (held !== null) return held;
  const items = await context.withReader(source, (reader, signal) =>
    context.terminal().progress(`Listing ${kind}s`, (update) =>
      fromService<Things[K]>(reader, kind, { ...options, ...ask }, signal, update).catch((error: unknown) => {
        throw ask?.systemId === undefined ? error : unknownSystem(error, ask.systemId);
      }),
    ),
  );
  return { source, items, listedAt: null };
}

/** Replaces the service's validation error for an unknown system by a sentence. */
function unknownSystem(error: unknown, id: string): unknown {
  const failure = meaningOf(error);
  if (failure.kind !== "config" || failure.field !== "system_id") return error;
  return new ConfigError(`The service knows no system ${id}.`, {
    hint: "`plenum systems` lists the systems.",
    cause: error,
  });
}

async function fromState<T>(
  config: WhichState["config"],
  source: string,
  kind: Kind,
  { site, search }: InventoryOptions,
): Promise<Inventory<T> | null> {
  return readStateIfAny({ config, source }, async (store) => {
    const [poll, heldSites, held] = await Promise.all([
      store.document<StoredPoll>(documentSet("poll", source), `${kind}s`),
      store.documents<Listed<Site>>(documentSet("site", source)),
      store.documents<Listed<T>>(documentSet(kind, source)),
    ]);
    const listedAt = poll?.lastSuccess ?? null;
    if (listedAt === null) return null;
    const seen = [...heldSites.values()].filter(({ missingSince }) => missingSince === null);
    const sites = namesOf(seen.map(({ value }) => value));
    refuseUnknownSite(site, sites);
    const items: Located<T>[] = [];
    for (const { value, siteId, missingSince } of held.values()) {
      const name = siteId === null ? undefined : sites.get(siteId);
      if (siteId === null || name === undefined || missingSince !== null) continue;
      if ((site ?? siteId) !== siteId || !contains(value, search)) continue;
      items.push({ value, siteId, site: name });
    }
    return { source, items, listedAt };
  });
}

async function fromService<T>(
  reader: Reader,
  kind: Kind,
  { site, search, systemId }: InventoryOptions & { readonly systemId?: string },
  signal: AbortSignal,
  update: (text: string) => void,
): Promise<readonly Located<T>[]> {
  const sites = namesOf(await collect(reader.sites({}, signal)));
  refuseUnknownSite(site, sites);
  const items = new Map<string, Located<T>>();
  for (const [siteId, name] of sites) {
    if ((site ?? siteId) !== siteId) continue;
    const filter = { siteId, ...(search && { search }), ...(systemId && { systemId }) };
    const pages = reader[`${kind}s`](filter, signal) as AsyncIterable<Page<Things[Kind]>>;
    // Several sites may list one thing; it belongs to the first, as in the worker.
    for (const value of await collect(pages))
      if (!items.has(value.id)) items.set(value.id, { value: value as T, siteId, site: name });
    update(`Listing ${kind}s: ${items.size}`);
  }
  return [...items.values()];
}

export function namesOf(sites: readonly Site[]): ReadonlyMap<number, string> {
  return new Map(sites.map(({ id, displayName }) => [id, displayName]));
}

const SITES_NAMED = 10;

/** Throws ConfigError that names the sites that there are. */
export function refuseUnknownSite(site: number | undefined, sites: ReadonlyMap<number, string>): void {
  if (site === undefined || sites.has(site)) return;
  const named = [...sites].slice(0, SITES_NAMED).map(([id, name]) => `${id} (${name})`);
  const rest = sites.size - named.length;
  throw new ConfigError(
    sites.size === 0
      ? "The token sees no site."
      : `The token sees no site ${site}; it sees ${named.join(", ")}${rest === 0 ? "" : ` and ${rest} more`}.`,
    { hint: "`plenum sites` lists them." },
  );
}

/** Searches every text field of the record, as the service does. */
function contains(value: unknown, search: string | undefined): boolean {
  if (search === undefined) return true;
  const wanted = search.toLowerCase();
  return Object.values(value as object).some(
    (field) => typeof field === "string" && field.toLowerCase().includes(wanted),
  );
}

/** Shows the things with these ids, or all without ids. Afterwards throws ConfigError that names the unknown ids. */
export function showChosen<T extends { readonly id: string }>(
  found: Inventory<T>,
  what: Kind,
  wanted: readonly string[],
  show: (items: readonly Located<T>[]) => void,
): void {
  const ids = [...new Set(wanted.flatMap((text) => text.split(",")))];
  if (ids.length === 0) {
    show(found.items);
    return;
  }
  const byId = new Map(found.items.map((item) => [item.value.id, item]));
  const unknown = ids.filter((id) => !byId.has(id));
  const known = ids.flatMap((id) => byId.get(id) ?? []);
  if (known.length > 0) show(known);
  if (unknown.length === 0) return;
  const named = unknown.length === 1 ? `no ${what} ${unknown[0]}` : `no ${what}s ${unknown.join(", ")}`;
  throw new ConfigError(`There is ${named} among the ${found.items.length} ${what}s of ${found.source}.`, {
    hint: `\`plenum ${what}s --search\` finds them by their names.`,
  });
}

/** Prints how many things were found, and whether the worker or the service listed them. */
export function printOrigin(terminal: Terminal, what: Kind, shown: number, found: Inventory<unknown>): void {
  const { listedAt, source } = found;
  const counted = `${shown} ${what}${shown === 1 ? "" : "s"} of ${source}`;
  terminal.say(
    listedAt === null
      ? `${counted}, as the service lists them.`
      : `${counted}, as the worker listed them ${ageText(listedAt)} ago.`,
  );
}

export function ageText(time: string): string {
  return durationText(Math.max(0, Math.round((systemClock.now() - Date.parse(time)) / 1_000)));
}
