import { rmSync } from "node:fs";
import { expect } from "vitest";
import { checkState } from "#src/engine/store/check.ts";
import { openStore } from "#src/engine/store/open.ts";
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
      const { tables } = checkState(folder);
      rmSync(folder, { recursive: true });
      expect(tables.filter(({ damaged }) => damaged > 0)).toEqual([]);
    },
  };
});
