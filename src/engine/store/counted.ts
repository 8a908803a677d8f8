import type { Metrics } from "../../core/runtime/metrics.ts";
import type { Store } from "./store.ts";

/** The same store, counting what it commits; an event whose id was in the log already is not counted again. */
export function counted(store: Store, metrics: Pick<Metrics, "eventsCommitted">): Store {
  return {
    ...store,
    async commit(change) {
      const committed = await store.commit(change);
      const repeated = new Set(committed.repeated);
      for (const { id, type } of change.events ?? []) {
        if (!repeated.has(id)) metrics.eventsCommitted.inc({ type });
      }
      return committed;
    },
  };
}
