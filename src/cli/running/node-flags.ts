/**
 * Flags of Node.js that fit the number of sources. How much room young objects have is decided when a process starts, so a
 * worker of many sources starts once more, in the same process, before it has opened anything.
 */

/** Flags that the start scripts and the image give a worker; docs/sizing.md has the measurements. */
const OF_FEW_SOURCES = [
  "--min-semi-space-size=4",
  "--max-semi-space-size=4",
  "--heap-growing-percent=20",
  "--no-parallel-scavenge",
  "--no-allocation-site-pretenuring",
];

/** A sixth to a quarter less processor time for each value with 20 and 200 sources, for 20 to 55 MB more memory. */
const OF_MANY_SOURCES = [
  "--min-semi-space-size=8",
  "--max-semi-space-size=8",
  "--heap-growing-percent=60",
  "--no-parallel-scavenge",
  "--no-allocation-site-pretenuring",
];

/** One source leaves so little behind in a second that more room saves nothing. */
const MANY_SOURCES = 10;

/** The flags that a worker of so many sources should have in place of those that it has; null where it keeps its own. */
export function betterFlags(
  sources: number,
  flags: readonly string[],
  environment: Readonly<Record<string, string | undefined>>,
): readonly string[] | null {
  const isByHand =
    environment.PLENUM_NODE_FLAGS !== undefined || flags.join(" ") !== OF_FEW_SOURCES.join(" ");
  return isByHand || sources < MANY_SOURCES ? null : OF_MANY_SOURCES;
}

/** Starts this process again with better flags, where it has others; does not return then. */
export function takeBetterFlags(sources: number): void {
  const flags = betterFlags(sources, process.execArgv, process.env);
  // Windows cannot replace a process: there the worker keeps the flags that it has.
  if (flags === null || process.platform === "win32") return;
  process.execve?.(process.execPath, [process.execPath, ...flags, ...process.argv.slice(1)], process.env);
}
