import { describe } from "vitest";
import type { Clock } from "#src/core/runtime/clock.ts";
import { programPath } from "../../real-servers.ts";
import { sized } from "../../sizes.ts";
import { type DurableStore, describeDurableStore } from "../../suites/durable-store-suite.ts";
import { describeLag } from "../../suites/lag-suite.ts";
import { describeStore } from "../../suites/store-suite.ts";
import { describeUrgent } from "../../suites/urgent-suite.ts";
import { createHarness, locationOn, startServerForTests } from "./postgres-harness.ts";

describe.skipIf(programPath("postgres") === null)("the state in PostgreSQL", () => {
  // The connections of earlier tests take a moment to end.
  const server = startServerForTests({ lines: ["fsync = off", "max_connections = 60"] });

  async function openInSchema(clock: Clock): Promise<DurableStore> {
    const harness = createHarness(server());
    const database = await harness.open();
    let epoch = 0;
    async function acquire() {
      epoch += 1;
      await harness.acquire(epoch);
      return harness.shard(database, { epoch }, clock);
    }
    let store = await acquire();
    return {
      store,
      afterKill: async (inspect) => inspect(await harness.shard(database, "reader", clock)),
      async reopen() {
        await store.close();
        store = await acquire();
        return store;
      },
      async dispose() {
        await store.close();
        await harness.close();
      },
    };
  }

  describeStore("PostgreSQL", openInSchema);
  describeDurableStore("PostgreSQL", openInSchema);
  describeLag("PostgreSQL", () => locationOn(server()));
  describeUrgent("PostgreSQL", 2_000, sized(10, 4), () => locationOn(server()));
});
