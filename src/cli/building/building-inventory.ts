import type { Command } from "commander";
import type { ObjectByNoun } from "../../core/connector.ts";
import { asFailure, ConfigError } from "../../core/errors/errors.ts";
import type { Site } from "../../core/model/building.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import { formatSeconds } from "../../core/values/duration.ts";
import { formatCount } from "../../core/values/plural.ts";
import type { ListPage } from "../../engine/source/source.ts";
import { documentSet, type Store } from "../../engine/store/store.ts";
import type { StoredJob, StoredObject } from "../../engine/sync/stored-documents.ts";
import type { SourceReader } from "../../ui/operator/control-socket-client.ts";
import { type CliContext, chooseSource, collectPageItems, parseInteger } from "../shell/command-context.ts";
import { splitCommaSeparatedIds } from "../shell/common-command-options.ts";
import { readStateIfAny } from "../shell/open-worker-state.ts";
import type { Terminal } from "../shell/terminal-output.ts";

type ObjectsByKind = Omit<ObjectByNoun, "site">;
export type ObjectKind = keyof ObjectsByKind;

export interface InventoryOptions {
  readonly source?: string;
  readonly site?: number;
  readonly search?: string;
}

export interface ObjectWithSite<T> {
  readonly value: T;
  readonly siteId: number;
  readonly site: string;
}

export interface Inventory<T> {
  readonly source: string;
  readonly items: readonly ObjectWithSite<T>[];
  /** UTC time at which the worker last listed the objects; null if the service listed them just now. */
  readonly listedAt: string | null;
}

export function addInventoryOptions(command: Command): Command {
  return command
    .option("--source <name>", "which source, when there are several")
    .option("--site <id>", "only this site", parseInteger)
    .option("--search <text>", "only what contains this");
}

/** Reads the list from the worker's state, or from the service if the state has no list or `systemId` is given. */
export async function readBuildingInventory<K extends ObjectKind>(
  context: CliContext,
  kind: K,
  options: InventoryOptions,
  systemId?: string,
): Promise<Inventory<ObjectsByKind[K]>> {
  const config = context.config();
  const [source] = chooseSource(config, options.source);
  if (systemId === undefined) {
    const storedInventory = await readStateIfAny({ config, source }, (store) =>
      listObjectsFromState<ObjectsByKind[K]>(store, source, kind, options),
    );
    if (storedInventory !== null) return storedInventory;
  }
  const items = await context.withReader(source, (reader, signal) =>
    context.terminal().progress(`Listing ${kind}s`, async (update) => {
      try {
        return await listObjectsFromService<ObjectsByKind[K]>(reader, kind, { ...options, systemId }, signal, update);
      } catch (error) {
        const failure = asFailure(error);
        if (systemId === undefined || failure.kind !== "config" || failure.field !== "system_id") throw error;
        const hint = "`plenum systems` lists the systems.";
        throw new ConfigError(`The service knows no system ${systemId}.`, { hint, cause: error });
      }
    }),
  );
  return { source, items, listedAt: null };
}

async function listObjectsFromState<T>(
  store: Store,
  source: string,
  kind: ObjectKind,
  { site, search }: InventoryOptions,
): Promise<Inventory<T> | null> {
  const [poll, storedSites, storedObjects] = await Promise.all([
    store.document<StoredJob>(documentSet("poll", source), `${kind}s`),
    store.documents<StoredObject<Site>>(documentSet("site", source)),
    store.documents<StoredObject<T>>(documentSet(kind, source)),
  ]);
  const listedAt = poll?.lastSuccess ?? null;
  if (listedAt === null) return null;
  const visibleSites = [...storedSites.values()].filter(({ missingSince }) => missingSince === null);
  const siteNamesById = mapSiteNames(visibleSites.map(({ value }) => value));
  refuseUnknownSite(site, siteNamesById);
  const items = [...storedObjects.values()].flatMap(({ value, siteId, missingSince }): readonly ObjectWithSite<T>[] => {
    const siteName = siteId === null ? undefined : siteNamesById.get(siteId);
    if (siteId === null || siteName === undefined || missingSince !== null) return [];
    return (site ?? siteId) === siteId && anyFieldContains(value, search) ? [{ value, siteId, site: siteName }] : [];
  });
  return { source, items, listedAt };
}

async function listObjectsFromService<T>(
  reader: SourceReader,
  kind: ObjectKind,
  { site, search, systemId }: InventoryOptions & { readonly systemId: string | undefined },
  signal: AbortSignal,
  update: (progressText: string) => void,
): Promise<readonly ObjectWithSite<T>[]> {
  const siteNamesById = mapSiteNames(await collectPageItems(reader.sites({}, signal)));
  refuseUnknownSite(site, siteNamesById);
  const items = new Map<string, ObjectWithSite<T>>();
  for (const [siteId, name] of siteNamesById) {
    if ((site ?? siteId) !== siteId) continue;
    const inventoryFilter = { siteId, ...(search && { search }), ...(systemId && { systemId }) };
    const pages = reader[`${kind}s`](inventoryFilter, signal) as AsyncIterable<ListPage<ObjectsByKind[ObjectKind]>>;
    // Several sites may list the same object. Assign it to the first of these sites, as the worker does.
    for (const value of await collectPageItems(pages))
      if (!items.has(value.id)) items.set(value.id, { value: value as T, siteId, site: name });
    update(`Listing ${kind}s: ${items.size}`);
  }
  return [...items.values()];
}

export function mapSiteNames(sites: readonly Site[]): ReadonlyMap<number, string> {
  return new Map(sites.map(({ id, displayName }) => [id, displayName]));
}

const MAX_SITES_IN_ERROR = 10;

export function refuseUnknownSite(site: number | undefined, sites: ReadonlyMap<number, string>): void {
  if (site === undefined || sites.has(site)) return;
  const listedSiteTexts = [...sites].slice(0, MAX_SITES_IN_ERROR).map(([id, name]) => `${id} (${name})`);
  const omittedSiteCount = sites.size - listedSiteTexts.length;
  throw new ConfigError(
    sites.size === 0
      ? "The token sees no site."
      : `The token sees no site ${site}; it sees ${listedSiteTexts.join(", ")}${omittedSiteCount === 0 ? "" : ` and ${omittedSiteCount} more`}.`,
    { hint: "`plenum sites` lists them." },
  );
}

function anyFieldContains(value: unknown, search: string | undefined): boolean {
  if (search === undefined) return true;
  const lowerCaseSearchText = search.toLowerCase();
  return Object.values(value as object).some(
    (fieldValue) => typeof fieldValue === "string" && fieldValue.toLowerCase().includes(lowerCaseSearchText),
  );
}

/** Prints the objects with the given ids, or all objects if no id is given. Throws ConfigError for unknown ids. */
export function showObjects<T extends { readonly id: string }>(
  { items, source }: Inventory<T>,
  kind: ObjectKind,
  idTexts: readonly string[],
  printItems: (items: readonly ObjectWithSite<T>[]) => void,
) {
  if (idTexts.length === 0) return printItems(items);
  const ids = splitCommaSeparatedIds(idTexts);
  const objectsById = new Map(items.map((item) => [item.value.id, item]));
  const unknownIds = ids.filter((id) => !objectsById.has(id));
  if (unknownIds.length < ids.length) printItems(ids.flatMap((id) => objectsById.get(id) ?? []));
  if (unknownIds.length === 0) return;
  const unknownObjectsText = `no ${kind}${unknownIds.length === 1 ? "" : "s"} ${unknownIds.join(", ")}`;
  throw new ConfigError(`There is ${unknownObjectsText} among the ${items.length} ${kind}s of ${source}.`, {
    hint: `\`plenum ${kind}s --search\` finds them by their names.`,
  });
}

export function printListOrigin(terminal: Terminal, kind: ObjectKind, count: number, inventory: Inventory<unknown>) {
  const { listedAt, source } = inventory;
  const origin = listedAt === null ? "as the service lists them" : `as the worker listed them ${ageText(listedAt)} ago`;
  terminal.info(`${formatCount(count, kind)} of ${source}, ${origin}.`);
}

export function ageText(time: string): string {
  return formatSeconds(Math.max(0, Math.round((systemClock.now() - Date.parse(time)) / 1_000)));
}
