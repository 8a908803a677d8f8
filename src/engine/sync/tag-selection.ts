import { z } from "zod";
import type { Tag } from "../../core/model/building.ts";
import { globMatches } from "../../core/values/glob.ts";

/** Returns the schema of an optional list with at least one entry. */
export function optionalList<T extends z.ZodType>(entry: T, description: string) {
  return z.array(entry).min(1).optional().meta({ description });
}

const TagSelectionFields = {
  sites: optionalList(z.int(), "Site ids; matches a tag of any of them."),
  systems: optionalList(z.string().min(1), "System ids; matches a tag that the list of any of them contains."),
  units: optionalList(z.string(), 'Units exactly as the service writes them; "" for a tag without a unit.'),
  name: z
    .union([z.string().min(1), z.array(z.string().min(1)).min(1)])
    .optional()
    .meta({
      description:
        "One or more patterns for the display name or the description: * is any text, ? is one character, case is ignored.",
    }),
  ids: optionalList(z.string().min(1), "Tag ids."),
};

/** Selects tags that match an entry of each given field, except those that `exclude` selects. Empty: all tags. */
export const TagSelection = z.strictObject({
  ...TagSelectionFields,
  exclude: z
    .strictObject(TagSelectionFields)
    .refine((fields) => Object.values(fields).some((field) => field !== undefined), {
      message: "An empty exclude would take out every tag: say which.",
    })
    .optional()
    .meta({ description: "Tags to leave out; the same fields." }),
});
export type TagSelection = z.infer<typeof TagSelection>;

export interface SelectableTag {
  readonly tag: Tag;
  readonly siteId: number | null;
  readonly systemIds: readonly string[];
}

export function createTagFilter(selection: TagSelection): (candidate: SelectableTag) => boolean {
  const { exclude, ...include } = selection;
  const isTagIncluded = createTagFieldFilter(include);
  if (exclude === undefined) return isTagIncluded;
  const isTagExcluded = createTagFieldFilter(exclude);
  return (candidate) => isTagIncluded(candidate) && !isTagExcluded(candidate);
}

/** Returns a function that finds the first entry that selects a tag, as in a routing table. */
export function createClassFinder<E extends { readonly select: TagSelection }>(
  entries: readonly E[],
): (candidate: SelectableTag) => E | undefined {
  const classesWithFilter = entries.map((entry) => ({ entry, matches: createTagFilter(entry.select) }));
  return (candidate) => classesWithFilter.find(({ matches }) => matches(candidate))?.entry;
}

function createTagFieldFilter(fields: Omit<TagSelection, "exclude">): (candidate: SelectableTag) => boolean {
  const selectedSites = fields.sites && new Set(fields.sites);
  const selectedSystems = fields.systems && new Set(fields.systems);
  const selectedUnits = fields.units && new Set(fields.units);
  const ids = fields.ids && new Set(fields.ids);
  const namePatterns = fields.name === undefined ? undefined : [fields.name].flat();
  return ({ tag, siteId, systemIds }) =>
    (selectedSites === undefined || (siteId !== null && selectedSites.has(siteId))) &&
    (selectedSystems === undefined || systemIds.some((id) => selectedSystems.has(id))) &&
    (selectedUnits === undefined || selectedUnits.has(tag.unit ?? "")) &&
    (ids === undefined || ids.has(tag.id)) &&
    (namePatterns === undefined ||
      namePatterns.some(
        (pattern) =>
          globMatches(pattern, tag.displayName) || (tag.description !== null && globMatches(pattern, tag.description)),
      ));
}

export function rejectDuplicateNames(entries: readonly { readonly name: string }[], context: z.RefinementCtx): void {
  const seenNames = new Set<string>();
  for (const [index, entry] of entries.entries()) {
    if (seenNames.has(entry.name)) {
      context.addIssue({
        code: "custom",
        path: [index, "name"],
        message: `The name ${entry.name} is used twice: give each one of its own.`,
      });
    }
    seenNames.add(entry.name);
  }
}
