import { afterAll, beforeAll, describe } from "vitest";
import { absent, type RealServer, startPostgres } from "../../real-servers.ts";
import { sized } from "../../sizes.ts";
import { describePromise } from "../../suites/promise-suite.ts";
import { placeOn } from "./rig.ts";

describe.skipIf(absent("postgres"))("delivery guarantees with the state in PostgreSQL", () => {
  let server: RealServer;
  beforeAll(async () => {
    server = await startPostgres({ lines: ["fsync = off"] });
  });
  afterAll(() => server?.stop());

  describePromise(sized(12, 6), () => placeOn(server));
});
