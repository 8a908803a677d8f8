import { asFailure, ConfigError, Retryable } from "../../core/errors/errors.ts";
import type { Alarm, System, Tag, TokenInfo } from "../../core/model/building.ts";
import type { ListPage, Source } from "../../engine/source/source.ts";
import type { SiteTag } from "../../engine/sync/inventory/requestable-tags.ts";

/** Maximum number of list requests: beyond it, the service's rate limit would delay requests. */
const MAX_LIST_REQUESTS = 18;
const SYSTEM_LIST_REQUESTS = 3;

export type BuildingSummary = ReturnType<typeof summarizeBuilding>;

export interface UnitTagCount {
  readonly unit: string;
  readonly tags: number;
}

interface PartialList<T> {
  /** Number of objects according to the service; `items` may contain only some of them. */
  readonly total: number;
  readonly items: readonly T[];
}

export interface BuildingInspection {
  readonly token: TokenInfo;
  readonly tagsBySite: ReadonlyMap<number, PartialList<Tag>>;
  readonly systems: readonly System[];
  readonly alarms: PartialList<Alarm> | null;
}

/** Reads lists of a building, which needs no quota. Throws ConfigError if the token permits neither alarms nor tags. */
export async function inspectBuilding(
  source: Source,
  signal: AbortSignal,
  onProgress: (text: string) => void = () => undefined,
): Promise<BuildingSummary> {
  const token = await source.me(signal);
  const hasAbility = (ability: string) => token.abilities.includes(ability);
  if (token.sites.length === 0)
    throw new ConfigError(`The token "${token.name}" sees no site, so there is nothing to follow.`, {
      hint: "Make one in your user profile at the service that is scoped to the sites you want.",
    });
  if (!hasAbility("read:alarms") && !hasAbility("read:tags"))
    throw new ConfigError(
      `The token "${token.name}" may read neither alarms nor tags; it may: ${token.abilities.join(", ") || "nothing"}.`,
      { hint: "Make one in your user profile at the service with read:alarms and read:tags." },
    );
  onProgress("Looking at alarms");
  const alarms = hasAbility("read:alarms") ? await readFirstPage(source.alarms({ status: "active" }, signal)) : null;
  const siteIds = token.sites.map(({ id }) => id);
  const tagsBySite = hasAbility("read:tags") ? await listTagsBySite(source, siteIds, signal, onProgress) : new Map();
  const systems: System[] = [];
  for (const siteId of hasAbility("read:systems")
    ? siteIds.slice(0, Math.min(SYSTEM_LIST_REQUESTS, MAX_LIST_REQUESTS - tagsBySite.size))
    : [])
    try {
      systems.push(...(await readFirstPage(source.systems({ siteId }, signal))).items);
    } catch (error) {
      // To list systems, the user needs a permission in addition to the token's `read:systems`.
      if (!isForbiddenError(error)) throw error;
    }
  return summarizeBuilding({ token, tagsBySite, systems, alarms });
}

async function listTagsBySite(
  source: Source,
  siteIds: readonly number[],
  signal: AbortSignal,
  onProgress: (text: string) => void,
): Promise<BuildingInspection["tagsBySite"]> {
  let requestCount = 0;
  const siteTagLists = siteIds.slice(0, MAX_LIST_REQUESTS).map((id) => {
    const pages = source.tags({ siteId: id }, signal)[Symbol.asyncIterator]();
    return { id, pages, total: 0, items: [] as Tag[], hasMore: false };
  });
  const readTagPage = async (site: (typeof siteTagLists)[number]) => {
    requestCount += 1;
    const { done, value } = await site.pages.next();
    site.hasMore = done !== true && value.hasMore;
    if (done === true) return;
    site.items.push(...value.items);
    site.total = Math.max(value.total ?? 0, site.items.length);
    onProgress(`Looking at tags: ${Math.min(requestCount, siteTagLists.length)} of ${siteIds.length} sites`);
  };
  for (const site of siteTagLists)
    await readTagPage(site).catch((error: unknown) => {
      // Skip a site whose tags the user may not list, unless it is the only site.
      if (!isForbiddenError(error) || siteIds.length === 1) throw error;
    });
  for (const site of siteTagLists) {
    while (site.hasMore && requestCount < MAX_LIST_REQUESTS - SYSTEM_LIST_REQUESTS) await readTagPage(site);
    await site.pages.return?.();
  }
  return new Map(siteTagLists.map(({ id, total, items }) => [id, { total, items }]));
}

function isForbiddenError(error: unknown): boolean {
  const failure = asFailure(error);
  return failure.kind === "config" && failure.reason === "forbidden";
}

async function readFirstPage<T>(pages: AsyncIterable<ListPage<T>>): Promise<PartialList<T>> {
  for await (const { items, total } of pages) return { total: Math.max(total ?? 0, items.length), items };
  return { total: 0, items: [] };
}

/** Explains an error of `inspectBuilding` to a person who has no configuration yet. */
export function explainInspectionError(error: unknown, baseUrl: string): Error {
  const failure = asFailure(error);
  if (failure.kind === "config" && failure.reason === "unauthenticated")
    return new ConfigError(`The service at ${baseUrl} does not accept this token.`, {
      reason: "unauthenticated",
      hint: "Make a new one in your user profile there (API token), and copy all of it.",
      cause: error,
    });
  if (failure.kind === "malformed" || (failure.kind === "config" && /^me: 404/.test(failure.message)))
    return new ConfigError(`Something answers at ${baseUrl}, but it is not the monitoring service.`, {
      hint: "The address is that of the service alone, such as https://monitoring.example.com.",
      cause: error,
    });
  const hideOptionName = (text: string) => text.replaceAll(/`?base_url`?/g, "the address");
  const errorOptions = { cause: error, ...(failure.hint === undefined ? {} : { hint: hideOptionName(failure.hint) }) };
  if (failure.kind === "config") return new ConfigError(hideOptionName(failure.message), errorOptions);
  return failure.kind === "retryable" ? new Retryable(hideOptionName(failure.message), errorOptions) : failure;
}

/** Summarizes a building. Estimates the units of unlisted tags from the units of the listed tags. */
export function summarizeBuilding({ token, tagsBySite, systems, alarms }: BuildingInspection) {
  const siteTagLists = [...tagsBySite.values()];
  const tagCountByUnit = new Map<string, number>();
  for (const { total, items } of siteTagLists) {
    const estimateFactor = (total / items.length) * (token.sites.length / siteTagLists.length);
    for (const { unit } of items)
      tagCountByUnit.set(unit ?? "", (tagCountByUnit.get(unit ?? "") ?? 0) + estimateFactor);
  }
  const units: readonly UnitTagCount[] = [...tagCountByUnit]
    .map(([unit, count]) => ({ unit, tags: Math.max(1, Math.round(count)) }))
    .toSorted((a, b) => b.tags - a.tags);
  const tagCount = units.reduce((sum, unitCount) => sum + unitCount.tags, 0);
  const listedTagCount = siteTagLists.reduce((sum, site) => sum + site.items.length, 0);
  return {
    token,
    /** Sites with the number of their tags; null for a site that was not inspected. */
    sites: token.sites.map((site) => ({ ...site, tags: tagsBySite.get(site.id)?.total ?? null })),
    ...{ units, tags: tagCount, listed: listedTagCount, isEstimate: listedTagCount < tagCount },
    systems: systems
      .map(({ id, code, displayName, datapointsCount }) => ({ id, code, displayName, tags: datapointsCount ?? 0 }))
      .toSorted((a, b) => b.tags - a.tags),
    alarms: alarms?.total ?? null,
    offsets: (alarms?.items ?? []).flatMap(({ triggeredAt, triggeredAtRaw }) => {
      const [, sign, hours, minutes] = /([+-])(\d\d):?(\d\d)$/.exec(triggeredAtRaw) ?? [];
      const offsetMinutes = Number(`${sign}1`) * (Number(hours) * 60 + Number(minutes));
      // A service that writes all times in UTC does not reveal the zone of its buildings.
      return Number.isNaN(offsetMinutes) || offsetMinutes === 0 ? [] : [{ time: triggeredAt, minutes: offsetMinutes }];
    }),
  };
}

/** Returns placeholder tags in the first site: a plan needs only the unit and the id of each tag. */
export function tagsForPlan({ units, sites }: BuildingSummary): readonly SiteTag[] {
  const siteId = sites[0]?.id ?? 0;
  return units
    .flatMap(({ unit, tags }) => new Array<string | null>(tags).fill(unit === "" ? null : unit))
    .map((unit, index) => ({
      ...{ siteId, systemIds: [] },
      tag: { id: String(index + 1), displayName: "", description: null, unit },
    }));
}

export function suggestSourceName({ sites }: Pick<BuildingSummary, "sites">): string {
  const [onlySite, ...otherSites] = sites;
  if (onlySite === undefined || otherSites.length > 0) return "buildings";
  const asciiName = onlySite.displayName
    .replaceAll(/[øØ]/g, "o")
    .replaceAll(/[æÆ]/g, "ae")
    .normalize("NFKD")
    .replaceAll(/\p{M}/gu, "")
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, "_")
    .slice(0, 32)
    .replaceAll(/^_+|_+$/g, "");
  return asciiName === "" ? "building" : asciiName;
}
