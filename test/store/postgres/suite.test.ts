import { afterAll, beforeAll, describe } from "vitest";
import { programPath, type RealServer, startPostgres } from "../../real-servers.ts";
import { sized } from "../../sizes.ts";
import { describeDurableStore } from "../../suites/durable-store-suite.ts";
import { describeLag } from "../../suites/lag-suite.ts";
import { describeStore } from "../../suites/store-suite.ts";
import { describeUrgent } from "../../suites/urgent-suite.ts";
import { createRig, placeOn } from "./rig.ts";

describe.skipIf(programPath("postgres") === null)("the state in PostgreSQL", () => {
  let server: RealServer;
  beforeAll(async () => {
    // The connections of earlier tests take a moment to end.
    server = await startPostgres({ lines: ["fsync = off", "max_connections = 60"] });
  });
  afterAll(() => server?.stop());

  describeStore("PostgreSQL", async (clock) => {
    const rig = createRig(server);
    const database = await rig.open();
    await rig.hold(1);
    let store = await rig.shard(database, { epoch: 1 }, clock);
    let epoch = 1;
    return {
      store,
      async reopen() {
        await store.close();
        epoch += 1;
        await rig.hold(epoch);
        store = await rig.shard(database, { epoch }, clock);
        return store;
      },
      async dispose() {
        await store.close();
        await rig.close();
      },
    };
  });

  describeDurableStore("PostgreSQL", async (clock) => {
    const rig = createRig(server);
    const database = await rig.open();
    await rig.hold(1);
    let store = await rig.shard(database, { epoch: 1 }, clock);
    return {
      store,
      afterKill: async (look) => look(await rig.shard(database, "reader", clock)),
      async reopen() {
        await store.close();
        store = await rig.shard(database, { epoch: 1 }, clock);
        return store;
      },
      async dispose() {
        await store.close();
        await rig.close();
      },
    };
  });

  describeLag("PostgreSQL", () => placeOn(server));
  describeUrgent("PostgreSQL", 2_000, sized(10, 4), () => placeOn(server));
});
