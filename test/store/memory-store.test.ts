import { describeStore } from "../suites/store-suite.ts";
import { createMemoryStore } from "../sync/memory-store.ts";

describeStore("memory", async (clock) => {
  const store = createMemoryStore(clock.now);
  return { store, reopen: async () => store, dispose: () => store.close() };
});
