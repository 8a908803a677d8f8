import { describe } from "vitest";
import { absent } from "../../real-servers.ts";
import { sized } from "../../sizes.ts";
import { describePromise } from "../../suites/promise-suite.ts";
import { locationOn, startServerForTests } from "./postgres-harness.ts";

describe.skipIf(absent("postgres"))("delivery guarantees with the state in PostgreSQL", () => {
  const server = startServerForTests();
  describePromise(sized(12, 6), () => locationOn(server()));
});
