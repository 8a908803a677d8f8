import { breath } from "../../src/waiting.ts";

/** Work that goes on for so long in one go, in milliseconds, lets the rest of the process run first. */
const AT_ONCE_MS = 8;

/** Returns a function that yields to the event loop where the work since its last yield took longer than `AT_ONCE_MS`. */
export function createPauses(): () => Promise<void> {
  let since = performance.now();
  return async () => {
    if (performance.now() - since < AT_ONCE_MS) return;
    await breath();
    since = performance.now();
  };
}
