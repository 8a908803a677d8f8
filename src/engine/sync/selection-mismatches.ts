import type { Site } from "../../core/model/building.ts";
import { createClassFinder, createTagFilter, type SelectableTag, type Selection } from "./tag-selection.ts";

export interface SeenBuilding {
  readonly sites: readonly Site[];
  readonly followed: readonly number[] | null;
  readonly tags: readonly SelectableTag[];
  readonly systems: readonly NamedThing[] | null;
  readonly gateways: readonly LocatedObject[] | null;
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
  const firstWordsText = words.slice(0, most).join(", ");
  return words.length > most ? `${firstWordsText} and ${words.length - most} more` : firstWordsText;
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
  const entriesWithoutTags = findDeadEntries(include, building);
  const includedTags = building.tags.filter(createTagFilter(include));
  if (includedTags.length === 0 && entriesWithoutTags.length === 0)
    return [{ path: [], message: describeNoneTogether(include, building) }];
  if (exclude === undefined || includedTags.length === 0) return entriesWithoutTags;
  const tagsLeft = building.tags.filter(createTagFilter(selection)).length;
  const message = `This takes out all ${includedTags.length} tags that the rest of the selection has: nothing is left.`;
  if (tagsLeft === 0) return [...entriesWithoutTags, { path: ["exclude"], message }];
  return [...entriesWithoutTags, ...prefixPaths("exclude", findDeadEntries(exclude, building))];
}

function prefixPaths(section: string, mismatches: readonly Mismatch[]): readonly Mismatch[] {
  return mismatches.map(({ path, message }) => ({ path: [section, ...path], message }));
}

function findDeadEntries(fields: SelectionFields, building: SeenBuilding): readonly Mismatch[] {
  const { sites = [], systems = [], units = [], name = [], ids = [] } = fields;
  const knownIds = new Set(building.tags.map(({ tag }) => tag.id));
  const missingIds = ids.filter((id) => !knownIds.has(id));
  const problemsByPath: readonly (readonly [path: Mismatch["path"], message: string | null])[] = [
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
  return problemsByPath.flatMap(([path, message]) => (message === null ? [] : [{ path, message }]));
}

function describeDeadSite(id: number, building: SeenBuilding): string | null {
  const unseenProblem = describeUnseenSite(id, building);
  if (unseenProblem !== null || building.tags.some(({ siteId }) => siteId === id)) return unseenProblem;
  return `Site ${id} has no tags that the token may see.`;
}

function describeDeadSystem(id: string, { systems, tags }: SeenBuilding): string | null {
  if (tags.some(({ systemIds }) => systemIds.includes(id))) return null;
  if (systems === null) return `No tag belongs to a system ${id}.`;
  const namedSystem = systems.find((system) => system.id === id);
  if (namedSystem !== undefined) return `The system ${id} (${namedSystem.name}) has no tags.`;
  const similarSystems = systems.filter(({ name }) => name.includes(id));
  const hint = similarSystems.length === 1 ? ` Write the id: "${similarSystems[0]?.id}".` : "";
  return `There is no system with the id ${id}; ${listNamed(similarSystems.length > 0 ? similarSystems : systems, "there are none")}.${hint}`;
}

function listNamed(things: readonly NamedThing[], none: string): string {
  return things.length === 0 ? none : `there are ${joinFirst(things.map(({ id, name }) => `${id} (${name})`))}`;
}

function describeDeadUnit(unit: string, { tags }: SeenBuilding): string | null {
  const tagsByUnit = Map.groupBy(tags, ({ tag }) => tag.unit ?? "");
  if (tagsByUnit.has(unit)) return null;
  const presentUnits = [...tagsByUnit]
    .toSorted(([, one], [, other]) => other.length - one.length)
    .map(([each, { length }]) => `${each === "" ? '"" (none)' : each} ${length}`);
  const similarUnit = tagsByUnit.keys().find((each) => normalizeUnit(each) === normalizeUnit(unit) && each !== "");
  return `No tag has the unit "${unit}"; there are ${joinFirst(presentUnits)}.${similarUnit === undefined ? "" : ` Write "${similarUnit}".`}`;
}

/** Reduces a unit to lower-case letters, digits and %: people vary °, ³, case and spaces. */
function normalizeUnit(unit: string): string {
  return unit
    .normalize("NFKC")
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N}%]/gu, "");
}

function describeDeadName(pattern: string, { tags }: SeenBuilding): string | null {
  if (tags.some(createTagFilter({ name: pattern }))) return null;
  const widerPattern = `*${pattern.replaceAll(/^\*+|\*+$/g, "")}*`;
  const matchCount = widerPattern === pattern ? 0 : tags.filter(createTagFilter({ name: widerPattern })).length;
  const nameHint =
    matchCount > 0
      ? `${matchCount} tags contain it: write "${widerPattern}"`
      : `names are such as ${firstThree(tags.map(({ tag }) => tag.displayName))}`;
  return `The name of no tag fits "${pattern}"; ${nameHint}.`;
}

function describeMissingIds(missing: readonly string[], { tags }: SeenBuilding): string {
  const problem = missing.length === 1 ? `There is no tag ${missing[0]}` : `There are no tags ${joinFirst(missing)}`;
  const tagWithName = tags.find(({ tag }) => tag.displayName === missing[0]);
  const hint = tagWithName === undefined ? "" : ` That is a name; its id is "${tagWithName.tag.id}".`;
  return `${problem}; ids are such as ${firstThree(tags.map(({ tag }) => tag.id))}.${hint}`;
}

function firstThree(words: readonly string[]): string {
  return words.slice(0, 3).join(", ");
}

function describeNoneTogether(fields: SelectionFields, building: SeenBuilding): string {
  const countTags = (field: SelectionFields) => building.tags.filter(createTagFilter(field)).length;
  const tagsPerField = Object.entries(fields)
    .filter(([, entries]) => entries !== undefined)
    .map(([field, entries]) => `${field} ${countTags({ [field]: entries })}`);
  const message = `Each field has tags by itself (${tagsPerField.join(", ")}), and no tag is in all of them.`;
  const tagsWithoutUnits = building.tags.filter(createTagFilter({ ...fields, units: undefined }));
  if (fields.units === undefined || tagsWithoutUnits.length === 0) return message;
  const foundUnits = [...new Set(tagsWithoutUnits.map(({ tag }) => tag.unit ?? '"" (none)'))];
  return `${message} Without \`units\` it has ${tagsWithoutUnits.length}, with the units ${joinFirst(foundUnits)}.`;
}

export interface TagClass {
  readonly name: string;
  readonly select: Selection;
}

export type ClassComparison = ReturnType<typeof compareClasses>[number];

/** Returns the number of tags of each class, in order, and the class's mismatches, with paths relative to the class. */
export function compareClasses(classes: readonly TagClass[], building: SeenBuilding) {
  const tagsByClass = Map.groupBy(building.tags, createClassFinder(classes));
  return classes.map((each, index) => {
    const { name, select } = each;
    const tags = tagsByClass.get(each)?.length ?? 0;
    const problems = prefixPaths("select", findSelectionMismatches(select, building));
    const takenText = tags > 0 ? null : describeEarlierClasses(each, classes.slice(0, index), building);
    return { name, tags, mismatches: takenText === null ? problems : [...problems, { path: [], message: takenText }] };
  });
}

function describeEarlierClasses({ select }: TagClass, before: readonly TagClass[], { tags: all }: SeenBuilding) {
  const ownTags = all.filter(createTagFilter(select));
  if (ownTags.length === 0) return null;
  const tagsByTakingClass = [...Map.groupBy(ownTags, createClassFinder(before))];
  const takers = tagsByTakingClass.map(([taker, tags]) => `${taker?.name} (${tags.length})`).join(", ");
  const whichStand = tagsByTakingClass.length === 1 ? "which stands" : "which stand";
  return `All ${ownTags.length} tags of this class are taken by ${takers}, ${whichStand} before it: put the more specific one first.`;
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
  const foundTag = building.tags.find(({ tag }) => tag.id === id);
  if (foundTag === undefined) {
    const [unseenSite] = findSiteMismatches([siteId], building);
    if (unseenSite !== undefined) return [{ path: ["site_id"], message: unseenSite.message }];
    return [{ path: ["tag_id"], message: `There is no tag ${id} at any site that is followed.` }];
  }
  const mismatches: Mismatch[] = [];
  const gateways = building.gateways?.filter((gateway) => gateway.siteId === siteId) ?? null;
  if (foundTag.siteId !== siteId) {
    const siteName = building.sites.find((site) => site.id === foundTag.siteId)?.displayName;
    const siteText = `site ${foundTag.siteId}${siteName === undefined ? "" : ` (${siteName})`}`;
    const message = `Tag ${id} is at ${siteText}, not ${siteId}: write site_id: ${foundTag.siteId}.`;
    mismatches.push({ path: ["site_id"], message });
  } else if (gatewayId !== undefined && gateways?.every((gateway) => gateway.id !== gatewayId) === true) {
    const message = `Site ${siteId} has no gateway ${gatewayId}; ${listNamed(gateways, "it has none")}.`;
    mismatches.push({ path: ["gateway_id"], message });
  }
  if (unit !== undefined && unit !== foundTag.tag.unit) {
    const realUnit = foundTag.tag.unit === null ? "no unit" : `the unit "${foundTag.tag.unit}"`;
    mismatches.push({ path: ["unit"], message: `Tag ${id} has ${realUnit}, not "${unit}".` });
  }
  const readType = building.valueTypes.get(id);
  if (readType !== undefined && readType !== type)
    mismatches.push({ path: ["type"], message: `Tag ${id} was read as a ${readType}: write type: ${readType}.` });
  return mismatches;
}
