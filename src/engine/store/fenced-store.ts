import { OrderlyStop } from "../../core/runtime/lifecycle.ts";
import type { Store } from "./store.ts";

/** Another member holds the source with a later epoch; nothing was committed. Stop without saving anything. */
export class FencedError extends Error {
  readonly source: string;
  constructor(source: string, options?: ErrorOptions) {
    super(`Another member of the fleet holds the source ${source} by now; nothing was committed here.`, options);
    this.name = "Fenced";
    this.source = source;
  }
}

/** Wraps a store: a lost lease calls `fenced` and throws `OrderlyStop`, so that callers stop and count no failure. */
export function createFencedStore(store: Store, fenced: () => void): Store {
  function wrapMethods<T extends object>(part: T): T {
    const entries = Object.entries(part).map(([name, member]) => {
      if (typeof member !== "function") return [name, member] as const;
      const callMember = async (...asked: unknown[]) => {
        try {
          return await member.apply(part, asked);
        } catch (error) {
          if (!(error instanceof FencedError)) throw error;
          fenced();
          throw new OrderlyStop();
        }
      };
      return [name, callMember] as const;
    });
    return Object.fromEntries(entries) as T;
  }

  return {
    ...wrapMethods(store),
    outbox: wrapMethods(store.outbox),
    quotaStore: wrapMethods(store.quotaStore),
    close: store.close,
  };
}
