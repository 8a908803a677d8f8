import type { Tag, TagNames } from "../../../core/model/building.ts";
import { createSerialRunner } from "../../../core/runtime/waiting.ts";

export type TagNamesById = ReadonlyMap<string, TagNames>;
export type TagNaming = ReturnType<typeof createTagNaming>;

/** Adds the names from the names file to tags. Before the first valid names file, tags keep their stored names. */
export function createTagNaming() {
  let namesById: TagNamesById | null = null;
  return {
    /** Runs commits of tags one after the other, so that an older list cannot revert changed names. */
    runSerially: createSerialRunner(),
    changeNames(newNamesById: TagNamesById): void {
      namesById = newNamesById;
    },
    nameTag(tag: Tag, storedTag: Tag | undefined): Tag {
      return withNames(tag, namesById === null ? storedTag : namesById.get(tag.id));
    },
  };
}

function withNames(tag: Tag, names: TagNames = {}): Tag {
  const { id, displayName, description, unit } = tag;
  const { alias, path, unitCode } = names;
  if (tag.alias === alias && tag.path === path && tag.unitCode === unitCode) return tag;
  return {
    ...{ id, displayName, description, unit },
    ...(alias !== undefined && { alias }),
    ...(path !== undefined && { path }),
    ...(unitCode !== undefined && { unitCode }),
  };
}
