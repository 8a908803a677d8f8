import { Rejected } from "../errors.ts";
import { isAskable, TAGS_PER_REQUEST, type TagWrite } from "./source.ts";

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

/** A request that we must not have made. Not a word of the service: nobody may be blamed for it. */
export class Misuse extends Error {}

/**
 * The ids of one request, each once. A group that cannot be asked for is a mistake of ours and nobody's refusal:
 * `Misuse`. Only a comma is impossible in an id, because it separates them; the service may use anything else.
 */
export function checkedGroup(ids: readonly string[]): string[] {
  const distinct = [...new Set(ids)];
  if (distinct.length === 0) throw new Misuse("A request needs at least one tag.");
  if (distinct.length > TAGS_PER_REQUEST) {
    throw new Misuse(
      `A request takes at most ${TAGS_PER_REQUEST} tags, not ${distinct.length} (interface, Limits).`,
    );
  }
  const bad = distinct.find((id) => !isAskable(id));
  if (bad !== undefined) throw new Misuse(`\`${bad.slice(0, 60)}\` cannot be the id of a tag.`);
  return distinct;
}

/** Writes that may leave in one request: 1 to 20 tags, each once, each a finite number or a boolean. */
export function checkedWrites(writes: readonly TagWrite[]): readonly TagWrite[] {
  if (idsOf(writes).length < writes.length) {
    throw new Rejected("One request must not write the same tag twice.");
  }
  for (const { tagId, value } of writes) {
    if (typeof value !== "boolean" && !(typeof value === "number" && Number.isFinite(value))) {
      throw new Rejected(`Tag ${tagId}: only a finite number or a boolean can be written.`);
    }
  }
  return writes;
}

/** A write that cannot be asked for is refused, not tried again. */
function idsOf(writes: readonly TagWrite[]): string[] {
  try {
    return checkedGroup(writes.map((write) => write.tagId));
  } catch (error) {
    throw error instanceof Misuse ? new Rejected(error.message) : error;
  }
}
