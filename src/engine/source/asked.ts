import { Rejected } from "../../core/errors/errors.ts";
import { type Choose, isAskable, type SlotOffer, TAGS_PER_REQUEST, type TagWrite } from "./source.ts";

/** A request whose content is known, or is decided when a slot is free. */
export interface Decided<C> {
  /** For the limiter; absent where there is nothing to decide. */
  readonly choose?: (offer: SlotOffer) => number | null;
  /** What is asked for, once it is decided. */
  readonly chosen: () => C;
}

/** What was given, or what is chosen when a slot is free; either way `check` sees it before it leaves. */
export function decided<T extends object, C>(asked: T | Choose<T>, check: (asked: T) => C): Decided<C> {
  if (!isChoose(asked)) {
    const checked = check(asked);
    return { chosen: () => checked };
  }
  let checked: { readonly content: C } | undefined;
  return {
    choose(offer) {
      const choice = asked(offer);
      if ("passMs" in choice) return choice.passMs;
      checked = { content: check(choice.ask) };
      return null;
    },
    chosen() {
      if (checked === undefined) throw new Error("A request left before it was decided what it asks for.");
      return checked.content;
    },
  };
}

/** The same request, seen by `look` at the moment it is decided. */
export function watched<T extends object>(asked: T | Choose<T>, look: (asked: T) => void): T | Choose<T> {
  if (!isChoose(asked)) {
    look(asked);
    return asked;
  }
  return (offer) => {
    const choice = asked(offer);
    if ("ask" in choice) look(choice.ask);
    return choice;
  };
}

function isChoose<T extends object>(asked: T | Choose<T>): asked is Choose<T> {
  return typeof asked === "function";
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
