import { describeStore } from "../suites/store-suite.ts";
import { createMemoryStore } from "../sync/memory-store.ts";

/** The store of the simulations: what they show holds for the real one as far as both keep the same contract. */
describeStore("memory", async (clock) => {
  const store = createMemoryStore(clock.now);
  return { store, reopen: async () => store, dispose: () => store.close() };
});
