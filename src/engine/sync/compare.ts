import type { Site } from "../../core/model/building.ts";
import { createClassFinder, type SelectableTag, type Selection, selects } from "./select.ts";

export interface SeenBuilding {
  readonly sites: readonly Site[];
  /** Ids of the sites whose tags are followed (`inventory.sites`); null for every site. */
  readonly followed: readonly number[] | null;
  readonly tags: readonly SelectableTag[];
  readonly systems: readonly NamedThing[] | null;
  readonly gateways: readonly LocatedObject[] | null;
  /** Types of the tags' last values by tag id; lacks tags without a value. */
  readonly valueTypes: ReadonlyMap<string, "number" | "boolean">;
}

export interface NamedThing {
  readonly id: string;
  readonly name: string;
}

export interface LocatedObject extends NamedThing {
  readonly siteId: number | null;
}

export interface Mismatch {
  readonly path: readonly (string | number)[];
  readonly message: string;
}

export function joinFirst(words: readonly string[], most = 8): string {
  const shown = words.slice(0, most).join(", ");
  return words.length > most ? `${shown} and ${words.length - most} more` : shown;
}

export function describeSites({ sites }: Pick<SeenBuilding, "sites">): string {
  if (sites.length === 0) return "it sees none";
  return `there are ${joinFirst(sites.map(({ id, displayName }) => `${id} (${displayName})`))}`;
}

export function findSiteMismatches(wanted: readonly number[], building: Pick<SeenBuilding, "sites" | "followed">) {
  return wanted.flatMap((id, index) => {
    const message = describeUnseenSite(id, building);
    return message === null ? [] : [{ path: [index], message }];
  });
}

function describeUnseenSite(id: number, building: Pick<SeenBuilding, "sites" | "followed">): string | null {
  if (!building.sites.some((site) => site.id === id))
    return `The token sees no site ${id}; ${describeSites(building)}.`;
  if (building.followed?.includes(id) !== false) return null;
  return `Site ${id} is not on the list inventory.sites of this source: add it there too.`;
}

type SelectionFields = Omit<Selection, "exclude">;

/** Returns the parts of a selection that select no tag, and an `exclude` that removes all tags or none. */
export function findSelectionMismatches(selection: Selection, building: SeenBuilding): readonly Mismatch[] {
  if (building.tags.length === 0) return [];
  const { exclude, ...include } = selection;
  const dead = findDeadEntries(include, building);
  const included = building.tags.filter(selects(include));
  if (included.length === 0 && dead.length === 0)
    return [{ path: [], message: describeNoneTogether(include, building) }];
  if (exclude === undefined || included.length === 0) return dead;
  const left = building.tags.filter(selects(selection)).length;
  const message = `This takes out all ${included.length} tags that the rest of the selection has: nothing is left.`;
  if (left === 0) return [...dead, { path: ["exclude"], message }];
  return [...dead, ...prefixPaths("exclude", findDeadEntries(exclude, building))];
}

function prefixPaths(section: string, mismatches: readonly Mismatch[]): readonly Mismatch[] {
  return mismatches.map(({ path, message }) => ({ path: [section, ...path], message }));
}

function findDeadEntries(fields: SelectionFields, building: SeenBuilding): readonly Mismatch[] {
  const { sites = [], systems = [], units = [], name = [], ids = [] } = fields;
  const knownIds = new Set(building.tags.map(({ tag }) => tag.id));
  const missingIds = ids.filter((id) => !knownIds.has(id));
  const found: readonly (readonly [path: Mismatch["path"], message: string | null])[] = [
    ...sites.map((id, index) => [["sites", index], describeDeadSite(id, building)] as const),
    ...systems.map((id, index) => [["systems", index], describeDeadSystem(id, building)] as const),
    ...units.map((unit, index) => [["units", index], describeDeadUnit(unit, building)] as const),
    ...(typeof name === "string"
      ? [[["name"], describeDeadName(name, building)] as const]
      : name.map((pattern, index) => [["name", index], describeDeadName(pattern, building)] as const)),
    ...missingIds
      .slice(0, 1)
      .map((id) => [["ids", ids.indexOf(id)], describeMissingIds(missingIds, building)] as const),
  ];
  return found.flatMap(([path, message]) => (message === null ? [] : [{ path, message }]));
}

function describeDeadSite(id: number, building: SeenBuilding): string | null {
  const unseen = describeUnseenSite(id, building);
  if (unseen !== null || building.tags.some(({ siteId }) => siteId === id)) return unseen;
  return `Site ${id} has no tags that the token may see.`;
}

function describeDeadSystem(id: string, { systems, tags }: SeenBuilding): string | null {
  if (tags.some(({ systemIds }) => systemIds.includes(id))) return null;
  if (systems === null) return `No tag belongs to a system ${id}.`;
  const known = systems.find((system) => system.id === id);
  if (known !== undefined) return `The system ${id} (${known.name}) has no tags.`;
  const similar = systems.filter(({ name }) => name.includes(id));
  const hint = similar.length === 1 ? ` Write the id: "${similar[0]?.id}".` : "";
  return `There is no system with the id ${id}; ${listNamed(similar.length > 0 ? similar : systems, "there are none")}.${hint}`;
}

function listNamed(things: readonly NamedThing[], none: string): string {
  return things.length === 0 ? none : `there are ${joinFirst(things.map(({ id, name }) => `${id} (${name})`))}`;
}

function describeDeadUnit(unit: string, { tags }: SeenBuilding): string | null {
  const byUnit = Map.groupBy(tags, ({ tag }) => tag.unit ?? "");
  if (byUnit.has(unit)) return null;
  const present = [...byUnit]
    .toSorted(([, one], [, other]) => other.length - one.length)
    .map(([each, { length }]) => `${each === "" ? '"" (none)' : each} ${length}`);
  const similar = byUnit.keys().find((each) => normalizeUnit(each) === normalizeUnit(unit) && each !== "");
  return `No tag has the unit "${unit}"; there are ${joinFirst(present)}.${similar === undefined ? "" : ` Write "${similar}".`}`;
}

/** Reduces a unit to lower-case letters, digits and %: people vary °, ³, case and spaces. */
function normalizeUnit(unit: string): string {
  return unit
    .normalize("NFKC")
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N}%]/gu, "");
}

function describeDeadName(pattern: string, { tags }: SeenBuilding): string | null {
  if (tags.some(selects({ name: pattern }))) return null;
  const wider = `*${pattern.replaceAll(/^\*+|\*+$/g, "")}*`;
  const matches = wider === pattern ? 0 : tags.filter(selects({ name: wider })).length;
  const help =
    matches > 0
      ? `${matches} tags contain it: write "${wider}"`
      : `names are such as ${firstThree(tags.map(({ tag }) => tag.displayName))}`;
  return `The name of no tag fits "${pattern}"; ${help}.`;
}

function describeMissingIds(missing: readonly string[], { tags }: SeenBuilding): string {
  const what = missing.length === 1 ? `There is no tag ${missing[0]}` : `There are no tags ${joinFirst(missing)}`;
  const named = tags.find(({ tag }) => tag.displayName === missing[0]);
  const hint = named === undefined ? "" : ` That is a name; its id is "${named.tag.id}".`;
  return `${what}; ids are such as ${firstThree(tags.map(({ tag }) => tag.id))}.${hint}`;
}

function firstThree(words: readonly string[]): string {
  return words.slice(0, 3).join(", ");
}

function describeNoneTogether(fields: SelectionFields, building: SeenBuilding): string {
  const count = (field: SelectionFields) => building.tags.filter(selects(field)).length;
  const each = Object.entries(fields)
    .filter(([, entries]) => entries !== undefined)
    .map(([field, entries]) => `${field} ${count({ [field]: entries })}`);
  const message = `Each field has tags by itself (${each.join(", ")}), and no tag is in all of them.`;
  const others = building.tags.filter(selects({ ...fields, units: undefined }));
  if (fields.units === undefined || others.length === 0) return message;
  const units = [...new Set(others.map(({ tag }) => tag.unit ?? '"" (none)'))];
  return `${message} Without \`units\` it has ${others.length}, with the units ${joinFirst(units)}.`;
}

export interface TagClass {
  readonly name: string;
  readonly select: Selection;
}

export interface ClassComparison {
  readonly name: string;
  readonly tags: number;
  readonly mismatches: readonly Mismatch[];
}

/** Returns the number of tags of each class, in order, and the class's mismatches, with paths relative to the class. */
export function compareClasses(classes: readonly TagClass[], building: SeenBuilding): readonly ClassComparison[] {
  const members = Map.groupBy(building.tags, createClassFinder(classes));
  return classes.map((each, index) => {
    const { name, select } = each;
    const tags = members.get(each)?.length ?? 0;
    const words = prefixPaths("select", findSelectionMismatches(select, building));
    const earlier = tags > 0 ? null : describeEarlierClasses(each, classes.slice(0, index), building);
    return { name, tags, mismatches: earlier === null ? words : [...words, { path: [], message: earlier }] };
  });
}

function describeEarlierClasses({ select }: TagClass, before: readonly TagClass[], { tags: all }: SeenBuilding) {
  const own = all.filter(selects(select));
  if (own.length === 0) return null;
  const taken = [...Map.groupBy(own, createClassFinder(before))];
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

export function findWritableMismatches(entry: WritableTag, building: SeenBuilding): readonly Mismatch[] {
  const { site_id: siteId, tag_id: id, gateway_id: gatewayId, unit, type } = entry;
  const found = building.tags.find(({ tag }) => tag.id === id);
  if (found === undefined) {
    const [unseen] = findSiteMismatches([siteId], building);
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
  const read = building.valueTypes.get(id);
  if (read !== undefined && read !== type)
    mismatches.push({ path: ["type"], message: `Tag ${id} was read as a ${read}: write type: ${read}.` });
  return mismatches;
}
