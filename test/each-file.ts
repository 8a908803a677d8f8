import { Agent, setGlobalDispatcher } from "undici";
import { forgetAllSecrets } from "#src/core/values/secret-masking.ts";

forgetAllSecrets();

// Connections close after each request: a test that computes for seconds would reuse a closed connection.
setGlobalDispatcher(new Agent({ pipelining: 0 }));

// Vitest switches the cache of compiled code off while it measures branches. The processes that tests start are not
// measured, so they use the cache; otherwise each would compile everything again.
delete process.env.NODE_DISABLE_COMPILE_CACHE;

// fast-check uses other values at each run, unless `PLENUM_SEED` says which.
if (process.env.PLENUM_SEED !== undefined) {
  const { default: fc } = await import("fast-check");
  fc.configureGlobal({ seed: Number(process.env.PLENUM_SEED) });
}
