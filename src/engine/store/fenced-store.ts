import { OrderlyStop } from "../../core/runtime/lifecycle.ts";
import type { Store } from "./store.ts";

/** Thrown by a commit after another fleet member took over the source. Nothing was committed; stop without saving. */
export class FencedError extends Error {
  readonly source: string;
  constructor(source: string, options?: ErrorOptions) {
    super(`Another member of the fleet holds the source ${source} by now; nothing was committed here.`, options);
    this.name = "Fenced";
    this.source = source;
  }
}

/** Wraps a store: a lost lease calls `onFenced` and throws `OrderlyStop`, so that callers stop and count no failure. */
export function createFencedStore(store: Store, onFenced: () => void): Store {
  function wrapStoreMethods<T extends object>(storePart: T): T {
    const wrappedMembers = Object.entries(storePart).map(([name, member]) => {
      if (typeof member !== "function") return [name, member] as const;
      const callStoreMethod = async (...methodArguments: unknown[]) => {
        try {
          return await member.apply(storePart, methodArguments);
        } catch (error) {
          if (!(error instanceof FencedError)) throw error;
          onFenced();
          throw new OrderlyStop();
        }
      };
      return [name, callStoreMethod] as const;
    });
    return Object.fromEntries(wrappedMembers) as T;
  }

  return {
    ...wrapStoreMethods(store),
    outbox: wrapStoreMethods(store.outbox),
    quotaStore: wrapStoreMethods(store.quotaStore),
    close: store.close,
  };
}
