import { rmSync } from "node:fs";
import { openStore } from "#src/store/open.ts";
import { temporaryFolder } from "../real-servers.ts";
import { describeStore } from "../suites/store-suite.ts";

describeStore("SQLite", async (clock) => {
  const folder = temporaryFolder();
  let store = await openStore({ folder, clock });
  return {
    store,
    async reopen() {
      await store.close();
      store = await openStore({ folder, clock });
      return store;
    },
    async dispose() {
      await store.close();
      rmSync(folder, { recursive: true });
    },
  };
});
