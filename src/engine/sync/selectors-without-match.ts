import type { Site } from "../../core/model/building.ts";
import { createClassFinder, createTagFilter, type SelectableTag, type TagSelection } from "./tag-selection.ts";

export interface VisibleBuilding {
  readonly sites: readonly Site[];
  readonly followed: readonly number[] | null;
  readonly tags: readonly SelectableTag[];
  readonly systems: readonly NamedObject[] | null;
  readonly gateways: readonly NamedSiteObject[] | null;
  readonly valueTypes: ReadonlyMap<string, "number" | "boolean">;
}

export interface NamedObject {
  readonly id: string;
  readonly name: string;
}

export interface NamedSiteObject extends NamedObject {
  readonly siteId: number | null;
}

export interface Mismatch {
  readonly path: readonly (string | number)[];
  readonly message: string;
}

export function joinWords(words: readonly string[], maxWords = 8): string {
  const firstWordsText = words.slice(0, maxWords).join(", ");
  return words.length > maxWords ? `${firstWordsText} and ${words.length - maxWords} more` : firstWordsText;
}

export function describeVisibleSites({ sites }: Pick<VisibleBuilding, "sites">): string {
  if (sites.length === 0) return "it sees none";
  return `there are ${joinWords(sites.map(({ id, displayName }) => `${id} (${displayName})`))}`;
}

export function findSiteMismatches(siteIds: readonly number[], building: Pick<VisibleBuilding, "sites" | "followed">) {
  return siteIds.flatMap((id, index) => {
    const message = describeInvisibleSite(id, building);
    return message === null ? [] : [{ path: [index], message }];
  });
}

function describeInvisibleSite(id: number, building: Pick<VisibleBuilding, "sites" | "followed">): string | null {
  if (!building.sites.some((site) => site.id === id))
    return `The token sees no site ${id}; ${describeVisibleSites(building)}.`;
  if (building.followed?.includes(id) !== false) return null;
  return `Site ${id} is not on the list inventory.sites of this source: add it there too.`;
}

type TagSelectionFields = Omit<TagSelection, "exclude">;

/** Finds entries of a selection that select no tag, and an `exclude` that removes all tags or none. */
export function findSelectionMismatches(selection: TagSelection, building: VisibleBuilding): readonly Mismatch[] {
  if (building.tags.length === 0) return [];
  const { exclude, ...include } = selection;
  const entriesWithoutTags = findEntriesWithoutTags(include, building);
  const includedTags = building.tags.filter(createTagFilter(include));
  if (includedTags.length === 0 && entriesWithoutTags.length === 0)
    return [{ path: [], message: describeEmptyIntersection(include, building) }];
  if (exclude === undefined || includedTags.length === 0) return entriesWithoutTags;
  const remainingTagCount = building.tags.filter(createTagFilter(selection)).length;
  const message = `This takes out all ${includedTags.length} tags that the rest of the selection has: nothing is left.`;
  if (remainingTagCount === 0) return [...entriesWithoutTags, { path: ["exclude"], message }];
  return [...entriesWithoutTags, ...prefixMismatchPaths("exclude", findEntriesWithoutTags(exclude, building))];
}

function prefixMismatchPaths(section: string, mismatches: readonly Mismatch[]): readonly Mismatch[] {
  return mismatches.map(({ path, message }) => ({ path: [section, ...path], message }));
}

function findEntriesWithoutTags(fields: TagSelectionFields, building: VisibleBuilding): readonly Mismatch[] {
  const { sites = [], systems = [], units = [], name = [], ids = [] } = fields;
  const knownTagIds = new Set(building.tags.map(({ tag }) => tag.id));
  const missingTagIds = ids.filter((id) => !knownTagIds.has(id));
  const mismatchesByPath: readonly (readonly [path: Mismatch["path"], message: string | null])[] = [
    ...sites.map((id, index) => [["sites", index], describeSiteWithoutTags(id, building)] as const),
    ...systems.map((id, index) => [["systems", index], describeSystemWithoutTags(id, building)] as const),
    ...units.map((unit, index) => [["units", index], describeUnitWithoutTags(unit, building)] as const),
    ...(typeof name === "string"
      ? [[["name"], describeNameWithoutTags(name, building)] as const]
      : name.map((pattern, index) => [["name", index], describeNameWithoutTags(pattern, building)] as const)),
    ...missingTagIds
      .slice(0, 1)
      .map((id) => [["ids", ids.indexOf(id)], describeMissingTagIds(missingTagIds, building)] as const),
  ];
  return mismatchesByPath.flatMap(([path, message]) => (message === null ? [] : [{ path, message }]));
}

function describeSiteWithoutTags(id: number, building: VisibleBuilding): string | null {
  const invisibleSiteProblem = describeInvisibleSite(id, building);
  if (invisibleSiteProblem !== null || building.tags.some(({ siteId }) => siteId === id)) return invisibleSiteProblem;
  return `Site ${id} has no tags that the token may see.`;
}

function describeSystemWithoutTags(id: string, { systems, tags }: VisibleBuilding): string | null {
  if (tags.some(({ systemIds }) => systemIds.includes(id))) return null;
  if (systems === null) return `No tag belongs to a system ${id}.`;
  const matchingSystem = systems.find((system) => system.id === id);
  if (matchingSystem !== undefined) return `The system ${id} (${matchingSystem.name}) has no tags.`;
  const similarSystems = systems.filter(({ name }) => name.includes(id));
  const hint = similarSystems.length === 1 ? ` Write the id: "${similarSystems[0]?.id}".` : "";
  return `There is no system with the id ${id}; ${listNamedObjects(similarSystems.length > 0 ? similarSystems : systems, "there are none")}.${hint}`;
}

function listNamedObjects(objects: readonly NamedObject[], emptyText: string): string {
  return objects.length === 0 ? emptyText : `there are ${joinWords(objects.map(({ id, name }) => `${id} (${name})`))}`;
}

function describeUnitWithoutTags(unit: string, { tags }: VisibleBuilding): string | null {
  const tagsByUnit = Map.groupBy(tags, ({ tag }) => tag.unit ?? "");
  if (tagsByUnit.has(unit)) return null;
  const unitsByTagCount = [...tagsByUnit]
    .toSorted(([, a], [, b]) => b.length - a.length)
    .map(([each, { length }]) => `${each === "" ? '"" (none)' : each} ${length}`);
  const similarUnit = tagsByUnit.keys().find((each) => normalizeUnit(each) === normalizeUnit(unit) && each !== "");
  return `No tag has the unit "${unit}"; there are ${joinWords(unitsByTagCount)}.${similarUnit === undefined ? "" : ` Write "${similarUnit}".`}`;
}

/** Reduces a unit to lower-case letters, digits and %: people vary °, ³, case and spaces. */
function normalizeUnit(unit: string): string {
  const letters = unit.normalize("NFKC").toLowerCase();
  return letters.replaceAll(/[^\p{L}\p{N}%]/gu, "");
}

function describeNameWithoutTags(pattern: string, { tags }: VisibleBuilding): string | null {
  if (tags.some(createTagFilter({ name: pattern }))) return null;
  const widerNamePattern = `*${pattern.replaceAll(/^\*+|\*+$/g, "")}*`;
  const matchCount = widerNamePattern === pattern ? 0 : tags.filter(createTagFilter({ name: widerNamePattern })).length;
  const firstNames = tags.slice(0, 3).map(({ tag }) => tag.displayName);
  const namePatternHint =
    matchCount > 0
      ? `${matchCount} tags contain it: write "${widerNamePattern}"`
      : `names are such as ${firstNames.join(", ")}`;
  return `The name of no tag fits "${pattern}"; ${namePatternHint}.`;
}

function describeMissingTagIds(ids: readonly string[], { tags }: VisibleBuilding): string {
  const problem = ids.length === 1 ? `There is no tag ${ids[0]}` : `There are no tags ${joinWords(ids)}`;
  const tagWithName = tags.find(({ tag }) => tag.displayName === ids[0]);
  const hint = tagWithName === undefined ? "" : ` That is a name; its id is "${tagWithName.tag.id}".`;
  const firstIds = tags.slice(0, 3).map(({ tag }) => tag.id);
  return `${problem}; ids are such as ${firstIds.join(", ")}.${hint}`;
}

function describeEmptyIntersection(fields: TagSelectionFields, building: VisibleBuilding): string {
  const countMatchingTags = (selection: TagSelectionFields) => building.tags.filter(createTagFilter(selection)).length;
  const tagCountsPerField = Object.entries(fields)
    .filter(([, entries]) => entries !== undefined)
    .map(([field, entries]) => `${field} ${countMatchingTags({ [field]: entries })}`);
  const message = `Each field has tags by itself (${tagCountsPerField.join(", ")}), and no tag is in all of them.`;
  const tagsIgnoringUnits = building.tags.filter(createTagFilter({ ...fields, units: undefined }));
  if (fields.units === undefined || tagsIgnoringUnits.length === 0) return message;
  const foundUnits = [...new Set(tagsIgnoringUnits.map(({ tag }) => tag.unit ?? '"" (none)'))];
  return `${message} Without \`units\` it has ${tagsIgnoringUnits.length}, with the units ${joinWords(foundUnits)}.`;
}

export interface TagClass {
  readonly name: string;
  readonly select: TagSelection;
}

export type TagClassComparison = ReturnType<typeof compareTagClasses>[number];

/** Returns per class its number of tags, and the options of its `select` that match nothing, e.g. an unknown site id. */
export function compareTagClasses(classes: readonly TagClass[], building: VisibleBuilding) {
  const tagsByClass = Map.groupBy(building.tags, createClassFinder(classes));
  return classes.map((each, index) => {
    const { name, select } = each;
    const tagCount = tagsByClass.get(each)?.length ?? 0;
    const problems = prefixMismatchPaths("select", findSelectionMismatches(select, building));
    const takenTagsText = tagCount > 0 ? null : describeEarlierTagClasses(each, classes.slice(0, index), building);
    const mismatches = takenTagsText === null ? problems : [...problems, { path: [], message: takenTagsText }];
    return { name, tags: tagCount, mismatches };
  });
}

function describeEarlierTagClasses({ select }: TagClass, earlier: readonly TagClass[], { tags }: VisibleBuilding) {
  const selectedTags = tags.filter(createTagFilter(select));
  if (selectedTags.length === 0) return null;
  const tagsByEarlierClass = [...Map.groupBy(selectedTags, createClassFinder(earlier))];
  const earlierClassNames = tagsByEarlierClass.map(([owner, tags]) => `${owner?.name} (${tags.length})`).join(", ");
  const relativeClause = tagsByEarlierClass.length === 1 ? "which stands" : "which stand";
  return `All ${selectedTags.length} tags of this class are taken by ${earlierClassNames}, ${relativeClause} before it: put the more specific one first.`;
}

export interface WritableTag {
  readonly type: "number" | "boolean";
  readonly site_id: number;
  readonly tag_id: string;
  readonly unit?: string | undefined;
  readonly gateway_id?: string | undefined;
}

export function findWritableMismatches(allowedTag: WritableTag, building: VisibleBuilding): readonly Mismatch[] {
  const { site_id: siteId, tag_id: id, gateway_id: gatewayId, unit, type } = allowedTag;
  const foundTag = building.tags.find(({ tag }) => tag.id === id);
  if (foundTag === undefined) {
    const [siteMismatch] = findSiteMismatches([siteId], building);
    if (siteMismatch !== undefined) return [{ path: ["site_id"], message: siteMismatch.message }];
    return [{ path: ["tag_id"], message: `There is no tag ${id} at any site that is followed.` }];
  }
  const tagMismatches: Mismatch[] = [];
  const siteGateways = building.gateways?.filter((gateway) => gateway.siteId === siteId) ?? null;
  if (foundTag.siteId !== siteId) {
    const siteName = building.sites.find((site) => site.id === foundTag.siteId)?.displayName;
    const siteDescription = `site ${foundTag.siteId}${siteName === undefined ? "" : ` (${siteName})`}`;
    const message = `Tag ${id} is at ${siteDescription}, not ${siteId}: write site_id: ${foundTag.siteId}.`;
    tagMismatches.push({ path: ["site_id"], message });
  } else if (gatewayId !== undefined && siteGateways?.every((gateway) => gateway.id !== gatewayId) === true) {
    const message = `Site ${siteId} has no gateway ${gatewayId}; ${listNamedObjects(siteGateways, "it has none")}.`;
    tagMismatches.push({ path: ["gateway_id"], message });
  }
  if (unit !== undefined && unit !== foundTag.tag.unit) {
    const actualUnitText = foundTag.tag.unit === null ? "no unit" : `the unit "${foundTag.tag.unit}"`;
    tagMismatches.push({ path: ["unit"], message: `Tag ${id} has ${actualUnitText}, not "${unit}".` });
  }
  const valueType = building.valueTypes.get(id);
  if (valueType !== undefined && valueType !== type)
    tagMismatches.push({ path: ["type"], message: `Tag ${id} was read as a ${valueType}: write type: ${valueType}.` });
  return tagMismatches;
}
