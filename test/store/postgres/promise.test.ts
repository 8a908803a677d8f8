import { afterAll, beforeAll, describe } from "vitest";
import type { Clock } from "#src/clock.ts";
import type { StateDatabase } from "#src/store/postgres/state-database.ts";
import type { Place } from "../../delivery/workshop.ts";
import { absent, type RealServer, startPostgres } from "../../real-servers.ts";
import { sized } from "../../sizes.ts";
import { describePromise } from "../../suites/promise-suite.ts";
import { createRig } from "./rig.ts";

describe.skipIf(absent("postgres"))("the promise, with the state in PostgreSQL", () => {
  let server: RealServer;
  beforeAll(async () => {
    server = await startPostgres({ lines: ["fsync = off"] });
  });
  afterAll(() => server?.stop());

  describePromise(sized(12, 6), () => onServer(server));
});

/** A schema of its own. Virtual time rests for as long as the server has not answered. */
function onServer(server: RealServer): Place {
  const rig = createRig(server);
  let asked = 0;
  let epoch = 0;
  let database: StateDatabase | undefined;

  async function counted<T>(answer: Promise<T>): Promise<T> {
    asked += 1;
    try {
      return await answer;
    } finally {
      asked -= 1;
    }
  }

  const counting = (opened: StateDatabase): StateDatabase => ({
    ...opened,
    query: (...what) => counted(opened.query(...what)),
    transact: (...what) => counted(opened.transact(...what)),
    work: (what) => counted(opened.work(what)),
  });

  return {
    folder: "",
    isWaiting: () => asked > 0,
    async open(clock: Clock) {
      database ??= counting(await rig.open());
      epoch += 1;
      await rig.hold(epoch);
      return rig.shard(database, { epoch }, clock);
    },
    dispose: () => rig.close(),
  };
}
