import { rmSync } from "node:fs";
import { expect } from "vitest";
import type { Clock } from "#src/core/runtime/clock.ts";
import { openStore } from "#src/engine/store/open.ts";
import { checkStateInFolder } from "#src/engine/store/state-check.ts";
import { temporaryFolder } from "../real-servers.ts";
import { type DurableStore, describeDurableStore } from "../suites/durable-store-suite.ts";
import { describeStore } from "../suites/store-suite.ts";

async function openInFolder(clock: Clock): Promise<DurableStore> {
  const folder = temporaryFolder();
  let store = await openStore({ folder, clock });
  return {
    store,
    async afterKill(inspect) {
      const left = await openStore({ folder, clock, readOnly: true });
      try {
        return await inspect(left);
      } finally {
        await left.close();
      }
    },
    async reopen() {
      await store.close();
      store = await openStore({ folder, clock });
      return store;
    },
    async dispose() {
      await store.close();
      const { tables } = checkStateInFolder(folder);
      rmSync(folder, { recursive: true });
      expect(tables.filter(({ damaged }) => damaged > 0)).toEqual([]);
    },
  };
}

describeStore("SQLite", openInFolder);
describeDurableStore("SQLite", openInFolder);
