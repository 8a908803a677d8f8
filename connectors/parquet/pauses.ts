import { yieldToEventLoop } from "../../src/core/runtime/waiting.ts";

/** Work that goes on for so long in one go, in milliseconds, lets the rest of the process run first. */
const AT_ONCE_MS = 4;

let lastMs = performance.now();

/** Yields to the event loop where the last yield by this function is longer ago than `AT_ONCE_MS`. */
export async function pause(): Promise<void> {
  if (performance.now() - lastMs < AT_ONCE_MS) return;
  await yieldToEventLoop();
  lastMs = performance.now();
}
