import type { Site } from "../../../core/model/building.ts";
import type { SelectableTag } from "../select.ts";

/** What the service shows of the buildings of one source, for a comparison with what the configuration names. */
export interface SeenBuilding {
  /** Every site that the token sees. */
  readonly sites: readonly Site[];
  /** Ids of the sites whose tags are followed (`inventory.sites`); null for every site. */
  readonly followed: readonly number[] | null;
  /** The tags of the followed sites. */
  readonly tags: readonly SelectableTag[];
  /** Null where nobody has listed them. */
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
  /** Where it stands, below the section that was compared, such as `["units", 0]`. */
  readonly path: readonly (string | number)[];
  /** What is so, what there is instead and, where it is known, what to write. */
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

/** Which of some site ids the token does not see, and which it sees and nobody follows. */
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
      return [
        { path, message: `Site ${id} is not on the list inventory.sites of this source: add it there too.` },
      ];
    }
    return [];
  });
}
