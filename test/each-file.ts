import { Agent, setGlobalDispatcher } from "undici";
import { forgetSecrets } from "#src/core/values/masking.ts";

/** What is done before each file of tests; several follow one another in a process. */

forgetSecrets();

// What a test asks by itself has a connection of its own: one that computes for five seconds between two questions would
// send the second over a connection that the server is just closing.
setGlobalDispatcher(new Agent({ pipelining: 0 }));

// Where branches are measured, vitest switches the cache of compiled code off, for exact counts; the processes that tests
// start are not measured, and would each compile everything anew.
delete process.env.NODE_DISABLE_COMPILE_CACHE;

// fast-check tries other values at each run, unless `PLENUM_SEED` says which. A failure prints the seed.
if (process.env.PLENUM_SEED !== undefined) {
  const { default: fc } = await import("fast-check");
  fc.configureGlobal({ seed: Number(process.env.PLENUM_SEED) });
}
