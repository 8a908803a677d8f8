import type { Choose, SlotOffer } from "./source.ts";

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
