import type { Site } from "../../core/model/building.ts";
import { firstMatch, type SelectableTag, type Selection, selects } from "./select.ts";

/** Buildings of one source as the service lists them, to compare with the names in the configuration. */
export interface SeenBuilding {
  /** Every site that the token sees. */
  readonly sites: readonly Site[];
  /** Ids of the sites whose tags are followed (`inventory.sites`); null for every site. */
  readonly followed: readonly number[] | null;
  /** The tags of the followed sites. */
  readonly tags: readonly SelectableTag[];
  /** Null if they were not listed. */
  readonly systems: readonly NamedThing[] | null;
  readonly gateways: readonly LocatedObject[] | null;
  /** By tag id, what the last reading was; a tag that is not here was not read, or had no value. */
  readonly types: ReadonlyMap<string, "number" | "boolean">;
}

export interface NamedThing {
  readonly id: string;
  readonly name: string;
}

export interface LocatedObject extends NamedThing {
  readonly siteId: number | null;
}

/** Something that the configuration says and that means nothing in this building. */
export interface Mismatch {
  /** Path below the compared section, such as `["units", 0]`. */
  readonly path: readonly (string | number)[];
  /** States the mismatch, what exists instead and, if known, what to write. */
  readonly message: string;
}

/** Names and their numbers as a sentence has room for: `°C 14, % 8 and 3 more`. */
export function some(words: readonly string[], most = 8): string {
  const shown = words.slice(0, most).join(", ");
  return words.length > most ? `${shown} and ${words.length - most} more` : shown;
}

/** `There are 1 (School), 6 (Town hall).`, for a complaint about one that is not there. */
export function sitesThere({ sites }: Pick<SeenBuilding, "sites">): string {
  if (sites.length === 0) return "it sees none";
  return `there are ${some(sites.map(({ id, displayName }) => `${id} (${displayName})`))}`;
}

/** Returns configured sites that the token cannot see, and visible sites that are not configured. */
export function siteMismatches(
  wanted: readonly number[],
  building: Pick<SeenBuilding, "sites" | "followed">,
): readonly Mismatch[] {
  const seen = new Set(building.sites.map(({ id }) => id));
  const followed = building.followed && new Set(building.followed);
  return wanted.flatMap((id, index): readonly Mismatch[] => {
    const path = [index];
    if (!seen.has(id)) return [{ path, message: `The token sees no site ${id}; ${sitesThere(building)}.` }];
    if (followed?.has(id) === false) {
      return [{ path, message: `Site ${id} is not on the list inventory.sites of this source: add it there too.` }];
    }
    return [];
  });
}

/** Without `exclude`: fields that narrow. */
type Fields = Omit<Selection, "exclude">;

/**
 * Returns the parts of a selection that select no tag in a building: entries that match no tag, fields that match some
 * tags but none together, and an `exclude` that removes all tags or none. Empty if every part has an effect.
 */
export function selectionMismatches(selection: Selection, building: SeenBuilding): readonly Mismatch[] {
  // Without any tags the caller reports that once, not for each selection.
  if (building.tags.length === 0) return [];
  const { exclude, ...include } = selection;
  const dead = deadEntries(include, building);
  const included = building.tags.filter(selects(include));
  if (included.length === 0 && dead.length === 0) return [{ path: [], message: noneTogether(include, building) }];
  if (exclude === undefined || included.length === 0) return dead;
  const left = building.tags.filter(selects(selection)).length;
  const message = `This takes out all ${included.length} tags that the rest of the selection has: nothing is left.`;
  if (left === 0) return [...dead, { path: ["exclude"], message }];
  return [
    ...dead,
    ...deadEntries(exclude, building).map(({ path, message }) => ({ path: ["exclude", ...path], message })),
  ];
}

/** Entries of each field that fit no tag by themselves. */
function deadEntries(fields: Fields, building: SeenBuilding): readonly Mismatch[] {
  return [
    ...deadSites(fields.sites ?? [], building),
    ...deadSystems(fields.systems ?? [], building),
    ...deadUnits(fields.units ?? [], building),
    ...deadNames(fields.name, building),
    ...deadIds(fields.ids ?? [], building),
  ];
}

function deadSites(sites: readonly number[], building: SeenBuilding): readonly Mismatch[] {
  const withTags = new Set(building.tags.map(({ siteId }) => siteId));
  const unseen = siteMismatches(sites, building);
  const told = new Set(unseen.map(({ path }) => path[0]));
  const empty = sites.flatMap((id, index): readonly Mismatch[] =>
    told.has(index) || withTags.has(id)
      ? []
      : [{ path: [index], message: `Site ${id} has no tags that the token may see.` }],
  );
  return [...unseen, ...empty].map(({ path, message }) => ({ path: ["sites", ...path], message }));
}

function deadSystems(wanted: readonly string[], { systems, tags }: SeenBuilding): readonly Mismatch[] {
  const withTags = new Set(tags.flatMap(({ systemIds }) => systemIds));
  return wanted.flatMap((id, index): readonly Mismatch[] => {
    if (withTags.has(id)) return [];
    const path = ["systems", index];
    if (systems === null) return [{ path, message: `No tag belongs to a system ${id}.` }];
    const known = systems.find((system) => system.id === id);
    if (known !== undefined) return [{ path, message: `The system ${id} (${known.name}) has no tags.` }];
    const alike = systems.filter(({ name }) => name.includes(id));
    const shown = alike.length > 0 ? alike : systems;
    const there =
      shown.length === 0 ? "there are none" : `there are ${some(shown.map((each) => `${each.id} (${each.name})`))}`;
    const meant = alike.length === 1 ? ` Write the id: "${alike[0]?.id}".` : "";
    return [{ path, message: `There is no system with the id ${id}; ${there}.${meant}` }];
  });
}

function deadUnits(wanted: readonly string[], { tags }: SeenBuilding): readonly Mismatch[] {
  const counts = new Map<string, number>();
  for (const { tag } of tags) counts.set(tag.unit ?? "", (counts.get(tag.unit ?? "") ?? 0) + 1);
  const there = [...counts]
    .toSorted((a, b) => b[1] - a[1])
    .map(([unit, count]) => `${unit === "" ? '"" (none)' : unit} ${count}`);
  return wanted.flatMap((unit, index): readonly Mismatch[] => {
    if (counts.has(unit)) return [];
    const meant = [...counts.keys()].find((each) => bare(each) === bare(unit) && each !== "");
    const write = meant === undefined ? "" : ` Write "${meant}".`;
    return [{ path: ["units", index], message: `No tag has the unit "${unit}"; there are ${some(there)}.${write}` }];
  });
}

/** A unit by its letters alone: what people leave out or write otherwise is °, ³, case and spaces. */
function bare(unit: string): string {
  return unit
    .normalize("NFKC")
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N}%]/gu, "");
}

function deadNames(name: Fields["name"], { tags }: SeenBuilding): readonly Mismatch[] {
  const patterns = name === undefined ? [] : typeof name === "string" ? [name] : name;
  return patterns.flatMap((pattern, index): readonly Mismatch[] => {
    if (tags.some(selects({ name: pattern }))) return [];
    const path = typeof name === "string" ? ["name"] : ["name", index];
    const around = `*${pattern.replaceAll(/^\*+|\*+$/g, "")}*`;
    const wider = tags.filter(selects({ name: around }));
    const help =
      wider.length > 0 && around !== pattern
        ? `${wider.length} tags contain it: write "${around}"`
        : `names are such as ${some(
            tags.map(({ tag }) => tag.displayName),
            3,
          ).replace(/ and \d+ more$/, "")}`;
    return [{ path, message: `The name of no tag fits "${pattern}"; ${help}.` }];
  });
}

function deadIds(wanted: readonly string[], { tags }: SeenBuilding): readonly Mismatch[] {
  const known = new Set(tags.map(({ tag }) => tag.id));
  const gone = wanted.flatMap((id, index) => (known.has(id) ? [] : [{ id, index }]));
  const [first] = gone;
  if (first === undefined) return [];
  const what =
    gone.length === 1 ? `There is no tag ${first.id}` : `There are no tags ${some(gone.map(({ id }) => id))}`;
  const named = tags.find(({ tag }) => tag.displayName === first.id);
  const help = named === undefined ? "" : ` That is a name; its id is "${named.tag.id}".`;
  const such = some(
    tags.map(({ tag }) => tag.id),
    3,
  ).replace(/ and \d+ more$/, "");
  return [{ path: ["ids", first.index], message: `${what}; ids are such as ${such}.${help}` }];
}

/** Each field has tags by itself, and no tag is in all of them. */
function noneTogether(fields: Fields, building: SeenBuilding): string {
  const count = (field: Fields) => building.tags.filter(selects(field)).length;
  const each = (Object.keys(fields) as (keyof Fields)[])
    .filter((key) => fields[key] !== undefined)
    .map((key) => `${key} ${count({ [key]: fields[key] })}`);
  const widest =
    fields.units === undefined ? "" : unitsOf(building.tags.filter(selects({ ...fields, units: undefined })));
  return `Each field has tags by itself (${each.join(", ")}), and no tag is in all of them.${widest}`;
}

function unitsOf(tags: readonly SelectableTag[]): string {
  const units = [...new Set(tags.map(({ tag }) => tag.unit ?? '"" (none)'))];
  return units.length === 0 ? "" : ` Without \`units\` it has ${tags.length}, with the units ${some(units)}.`;
}

/** One entry of `read`, or of those of `history` for the same series. */
export interface NamedSelection {
  readonly name: string;
  readonly select: Selection;
}

export interface ClassComparison {
  readonly name: string;
  /** Tags that it has: those that it selects and no earlier one does. */
  readonly tags: number;
  readonly mismatches: readonly Mismatch[];
}

/**
 * Returns the tags of each class, in the order of the list, and its mismatches: entries that match no tag, or a class
 * whose tags all belong to earlier classes. Paths begin below the class.
 */
export function compareClasses(classes: readonly NamedSelection[], building: SeenBuilding): readonly ClassComparison[] {
  const members = Map.groupBy(building.tags, firstMatch(classes));
  return classes.map((each, index) => {
    const { name, select } = each;
    const tags = members.get(each)?.length ?? 0;
    const words = selectionMismatches(select, building).map(({ path, message }) => ({
      path: ["select", ...path],
      message,
    }));
    const earlier = tags > 0 ? null : takenBefore(each, classes.slice(0, index), building);
    return { name, tags, mismatches: earlier === null ? words : [...words, { path: [], message: earlier }] };
  });
}

function takenBefore(
  { select }: NamedSelection,
  before: readonly NamedSelection[],
  { tags: all }: SeenBuilding,
): string | null {
  const own = all.filter(selects(select));
  if (own.length === 0) return null;
  const taken = [...Map.groupBy(own, firstMatch(before))];
  const takers = taken.map(([taker, tags]) => `${taker?.name} (${tags.length})`).join(", ");
  const which = taken.length === 1 ? "which stands" : "which stand";
  return `All ${own.length} tags of this class are taken by ${takers}, ${which} before it: put the more specific one first.`;
}

/** Facts about a tag named in `commands.allow`. */
export interface WritableTag {
  readonly type: "number" | "boolean";
  readonly site_id: number;
  readonly tag_id: string;
  readonly unit?: string | undefined;
  readonly gateway_id?: string | undefined;
}

/** Why nothing could ever be written by an entry of `commands.allow`; empty where the building has such a tag. */
export function writableMismatches(entry: WritableTag, building: SeenBuilding): readonly Mismatch[] {
  const { site_id: siteId, tag_id: id } = entry;
  const found = building.tags.find(({ tag }) => tag.id === id);
  if (found === undefined) {
    const [unseen] = siteMismatches([siteId], building);
    if (unseen !== undefined) return [{ path: ["site_id"], message: unseen.message }];
    return [{ path: ["tag_id"], message: `There is no tag ${id} at any site that is followed.` }];
  }
  return [...wrongPlace(entry, found.siteId, building), ...wrongKind(entry, found.tag.unit, building)];
}

function wrongPlace(
  { site_id: siteId, tag_id: id, gateway_id: gatewayId }: WritableTag,
  realId: number | null,
  { sites, gateways }: SeenBuilding,
): readonly Mismatch[] {
  if (realId !== siteId) {
    const name = sites.find((site) => site.id === realId)?.displayName;
    const message = `Tag ${id} is at site ${realId}${name === undefined ? "" : ` (${name})`}, not ${siteId}: write site_id: ${realId}.`;
    return [{ path: ["site_id"], message }];
  }
  const there = gateways?.filter((gateway) => gateway.siteId === siteId) ?? null;
  if (gatewayId === undefined || there === null || there.some((gateway) => gateway.id === gatewayId)) return [];
  const known =
    there.length === 0 ? "it has none" : `there are ${some(there.map((each) => `${each.id} (${each.name})`))}`;
  return [{ path: ["gateway_id"], message: `Site ${siteId} has no gateway ${gatewayId}; ${known}.` }];
}

function wrongKind(
  { tag_id: id, unit, type }: WritableTag,
  realUnit: string | null,
  { types }: SeenBuilding,
): readonly Mismatch[] {
  const read = types.get(id);
  return [
    ...(unit === undefined || unit === realUnit
      ? []
      : [
          {
            path: ["unit"],
            message: `Tag ${id} has ${realUnit === null ? "no unit" : `the unit "${realUnit}"`}, not "${unit}".`,
          },
        ]),
    ...(read === undefined || read === type
      ? []
      : [{ path: ["type"], message: `Tag ${id} was read as a ${read}: write type: ${read}.` }]),
  ];
}
