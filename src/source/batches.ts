import { Rejected } from "../errors.ts";
import { TAGS_PER_REQUEST, type TagWrite } from "./source.ts";

/** Groups of at most `size` ids, each id once, in the order of first appearance. */
export function batches(ids: Iterable<string>, size: number = TAGS_PER_REQUEST): string[][] {
  const groups: string[][] = [];
  let last: string[] = [];
  for (const id of new Set(ids)) {
    if (last.length === 0) groups.push(last);
    last.push(id);
    if (last.length === size) last = [];
  }
  return groups;
}

/** The ids of one request, each once. Throws `Rejected` for a group that the service would refuse whole. */
export function checkedGroup(ids: readonly string[]): string[] {
  const distinct = [...new Set(ids)];
  if (distinct.length === 0) throw new Rejected("A request needs at least one tag.");
  if (distinct.length > TAGS_PER_REQUEST) {
    throw new Rejected(
      `A request takes at most ${TAGS_PER_REQUEST} tags, not ${distinct.length} (interface, Limits).`,
    );
  }
  const bad = distinct.find((id) => id === "" || /[,\s]/.test(id));
  if (bad !== undefined) throw new Rejected(`\`${bad.slice(0, 60)}\` cannot be the id of a tag.`);
  return distinct;
}

/** Writes that may leave in one request: 1 to 20 tags, each once, each a finite number or a boolean. */
export function checkedWrites(writes: readonly TagWrite[]): readonly TagWrite[] {
  if (checkedGroup(writes.map((write) => write.tagId)).length < writes.length) {
    throw new Rejected("One request must not write the same tag twice.");
  }
  for (const { tagId, value } of writes) {
    if (typeof value !== "boolean" && !(typeof value === "number" && Number.isFinite(value))) {
      throw new Rejected(`Tag ${tagId}: only a finite number or a boolean can be written.`);
    }
  }
  return writes;
}
