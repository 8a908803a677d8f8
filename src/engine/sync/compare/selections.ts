import { type SelectableTag, type Selection, selects } from "../select.ts";
import { type Mismatch, type SeenBuilding, siteMismatches, some } from "./building.ts";

/** Without `exclude`: fields that narrow. */
type Fields = Omit<Selection, "exclude">;

/**
 * What of a selection selects nothing in a building: entries of its fields that fit no tag, fields that fit some but
 * none together, an `exclude` that takes everything or nothing. Empty where each word of it means something.
 */
export function selectionMismatches(selection: Selection, building: SeenBuilding): readonly Mismatch[] {
  // Whoever sees no tags at all learns that once, and not of each selection.
  if (building.tags.length === 0) return [];
  const { exclude, ...include } = selection;
  const dead = deadEntries(include, building);
  const included = building.tags.filter(selects(include));
  if (included.length === 0 && dead.length === 0)
    return [{ path: [], message: noneTogether(include, building) }];
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
      shown.length === 0
        ? "there are none"
        : `there are ${some(shown.map((each) => `${each.id} (${each.name})`))}`;
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
    return [
      { path: ["units", index], message: `No tag has the unit "${unit}"; there are ${some(there)}.${write}` },
    ];
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
