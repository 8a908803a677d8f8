import type { Site } from "../../core/model/building.ts";
import { firstMatch, type SelectableTag, type Selection, selects } from "./select.ts";

export interface SeenBuilding {
  readonly sites: readonly Site[];
  /** Ids of the sites whose tags are followed (`inventory.sites`); null for every site. */
  readonly followed: readonly number[] | null;
  readonly tags: readonly SelectableTag[];
  readonly systems: readonly NamedThing[] | null;
  readonly gateways: readonly LocatedObject[] | null;
  /** Types of the last values by tag id; without tags that were not read or had no value. */
  readonly types: ReadonlyMap<string, "number" | "boolean">;
}

export interface NamedThing {
  readonly id: string;
  readonly name: string;
}

export interface LocatedObject extends NamedThing {
  readonly siteId: number | null;
}

export interface Mismatch {
  /** Path below the compared section, such as `["units", 0]`. */
  readonly path: readonly (string | number)[];
  readonly message: string;
}

/** Joins the first words: `°C 14, % 8 and 3 more`. */
export function some(words: readonly string[], most = 8): string {
  const shown = words.slice(0, most).join(", ");
  return words.length > most ? `${shown} and ${words.length - most} more` : shown;
}

/** `there are 1 (School), 6 (Town hall)` */
export function sitesThere({ sites }: Pick<SeenBuilding, "sites">): string {
  if (sites.length === 0) return "it sees none";
  return `there are ${some(sites.map(({ id, displayName }) => `${id} (${displayName})`))}`;
}

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

type Fields = Omit<Selection, "exclude">;

/** Returns the parts of a selection that select no tag, and an `exclude` that removes all tags or none. */
export function selectionMismatches(selection: Selection, building: SeenBuilding): readonly Mismatch[] {
  // Without any tags the caller reports that once, not for each selection.
  if (building.tags.length === 0) return [];
  const { exclude, ...include } = selection;
  const dead = deadEntries(include, building);
  const included = building.tags.filter(selects(include));
  if (included.length === 0 && dead.length === 0)
    return [{ path: [], message: describeNoneTogether(include, building) }];
  if (exclude === undefined || included.length === 0) return dead;
  const left = building.tags.filter(selects(selection)).length;
  const message = `This takes out all ${included.length} tags that the rest of the selection has: nothing is left.`;
  if (left === 0) return [...dead, { path: ["exclude"], message }];
  return [
    ...dead,
    ...deadEntries(exclude, building).map(({ path, message }) => ({ path: ["exclude", ...path], message })),
  ];
}

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
  const reported = new Set(unseen.map(({ path }) => path[0]));
  const empty = [...sites.entries()].filter(([index, id]) => !reported.has(index) && !withTags.has(id));
  return [
    ...unseen.map(({ path, message }) => ({ path: ["sites", ...path], message })),
    ...empty.map(([index, id]) => ({
      path: ["sites", index],
      message: `Site ${id} has no tags that the token may see.`,
    })),
  ];
}

function deadSystems(wanted: readonly string[], { systems, tags }: SeenBuilding): readonly Mismatch[] {
  const withTags = new Set(tags.flatMap(({ systemIds }) => systemIds));
  const describe = (id: string) => {
    if (systems === null) return `No tag belongs to a system ${id}.`;
    const known = systems.find((system) => system.id === id);
    if (known !== undefined) return `The system ${id} (${known.name}) has no tags.`;
    const similar = systems.filter(({ name }) => name.includes(id));
    const hint = similar.length === 1 ? ` Write the id: "${similar[0]?.id}".` : "";
    return `There is no system with the id ${id}; ${listNamed(similar.length > 0 ? similar : systems, "there are none")}.${hint}`;
  };
  return wanted.flatMap((id, index) => (withTags.has(id) ? [] : [{ path: ["systems", index], message: describe(id) }]));
}

function listNamed(things: readonly NamedThing[], none: string): string {
  return things.length === 0 ? none : `there are ${some(things.map(({ id, name }) => `${id} (${name})`))}`;
}

function deadUnits(wanted: readonly string[], { tags }: SeenBuilding): readonly Mismatch[] {
  const byUnit = Map.groupBy(tags, ({ tag }) => tag.unit ?? "");
  const present = [...byUnit]
    .toSorted(([, one], [, other]) => other.length - one.length)
    .map(([unit, { length }]) => `${unit === "" ? '"" (none)' : unit} ${length}`);
  return wanted.flatMap((unit, index) => {
    if (byUnit.has(unit)) return [];
    const similar = byUnit.keys().find((each) => lettersOf(each) === lettersOf(unit) && each !== "");
    const hint = similar === undefined ? "" : ` Write "${similar}".`;
    return [{ path: ["units", index], message: `No tag has the unit "${unit}"; there are ${some(present)}.${hint}` }];
  });
}

/** Letters, digits and % of a unit, in lower case: people vary °, ³, case and spaces. */
function lettersOf(unit: string): string {
  return unit
    .normalize("NFKC")
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N}%]/gu, "");
}

function deadNames(name: Fields["name"], { tags }: SeenBuilding): readonly Mismatch[] {
  const patterns = name === undefined ? [] : [name].flat();
  return patterns.flatMap((pattern, index) => {
    if (tags.some(selects({ name: pattern }))) return [];
    const path = typeof name === "string" ? ["name"] : ["name", index];
    const wider = `*${pattern.replaceAll(/^\*+|\*+$/g, "")}*`;
    const matches = wider === pattern ? 0 : tags.filter(selects({ name: wider })).length;
    const help =
      matches > 0
        ? `${matches} tags contain it: write "${wider}"`
        : `names are such as ${firstThree(tags.map(({ tag }) => tag.displayName))}`;
    return [{ path, message: `The name of no tag fits "${pattern}"; ${help}.` }];
  });
}

function deadIds(wanted: readonly string[], { tags }: SeenBuilding): readonly Mismatch[] {
  const ids = tags.map(({ tag }) => tag.id);
  const known = new Set(ids);
  const gone = wanted.filter((id) => !known.has(id));
  const [first] = gone;
  if (first === undefined) return [];
  const what = gone.length === 1 ? `There is no tag ${first}` : `There are no tags ${some(gone)}`;
  const named = tags.find(({ tag }) => tag.displayName === first);
  const hint = named === undefined ? "" : ` That is a name; its id is "${named.tag.id}".`;
  return [{ path: ["ids", wanted.indexOf(first)], message: `${what}; ids are such as ${firstThree(ids)}.${hint}` }];
}

function firstThree(words: readonly string[]): string {
  return words.slice(0, 3).join(", ");
}

function describeNoneTogether(fields: Fields, building: SeenBuilding): string {
  const count = (field: Fields) => building.tags.filter(selects(field)).length;
  const each = Object.entries(fields)
    .filter(([, entries]) => entries !== undefined)
    .map(([field, entries]) => `${field} ${count({ [field]: entries })}`);
  const message = `Each field has tags by itself (${each.join(", ")}), and no tag is in all of them.`;
  const others = building.tags.filter(selects({ ...fields, units: undefined }));
  if (fields.units === undefined || others.length === 0) return message;
  const units = [...new Set(others.map(({ tag }) => tag.unit ?? '"" (none)'))];
  return `${message} Without \`units\` it has ${others.length}, with the units ${some(units)}.`;
}

export interface NamedSelection {
  readonly name: string;
  readonly select: Selection;
}

export interface ClassComparison {
  readonly name: string;
  /** Number of tags that it selects and no earlier class does. */
  readonly tags: number;
  readonly mismatches: readonly Mismatch[];
}

/** Returns the tags of each class, in order, and its mismatches. Paths begin below the class. */
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

export interface WritableTag {
  readonly type: "number" | "boolean";
  readonly site_id: number;
  readonly tag_id: string;
  readonly unit?: string | undefined;
  readonly gateway_id?: string | undefined;
}

/** Returns why no tag can be written by an entry of `commands.allow`; empty if the building has such a tag. */
export function writableMismatches(entry: WritableTag, building: SeenBuilding): readonly Mismatch[] {
  const { site_id: siteId, tag_id: id, gateway_id: gatewayId, unit, type } = entry;
  const found = building.tags.find(({ tag }) => tag.id === id);
  if (found === undefined) {
    const [unseen] = siteMismatches([siteId], building);
    if (unseen !== undefined) return [{ path: ["site_id"], message: unseen.message }];
    return [{ path: ["tag_id"], message: `There is no tag ${id} at any site that is followed.` }];
  }
  const mismatches: Mismatch[] = [];
  const gateways = building.gateways?.filter((gateway) => gateway.siteId === siteId) ?? null;
  if (found.siteId !== siteId) {
    const name = building.sites.find((site) => site.id === found.siteId)?.displayName;
    const where = `site ${found.siteId}${name === undefined ? "" : ` (${name})`}`;
    const message = `Tag ${id} is at ${where}, not ${siteId}: write site_id: ${found.siteId}.`;
    mismatches.push({ path: ["site_id"], message });
  } else if (gatewayId !== undefined && gateways?.every((gateway) => gateway.id !== gatewayId) === true) {
    const message = `Site ${siteId} has no gateway ${gatewayId}; ${listNamed(gateways, "it has none")}.`;
    mismatches.push({ path: ["gateway_id"], message });
  }
  if (unit !== undefined && unit !== found.tag.unit) {
    const real = found.tag.unit === null ? "no unit" : `the unit "${found.tag.unit}"`;
    mismatches.push({ path: ["unit"], message: `Tag ${id} has ${real}, not "${unit}".` });
  }
  const read = building.types.get(id);
  if (read !== undefined && read !== type)
    mismatches.push({ path: ["type"], message: `Tag ${id} was read as a ${read}: write type: ${read}.` });
  return mismatches;
}
