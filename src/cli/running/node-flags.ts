/** Flags of the start scripts and the image; docs/sizing.md has the measurements. */
const OF_FEW_SOURCES = [
  "--min-semi-space-size=4",
  "--max-semi-space-size=4",
  "--heap-growing-percent=20",
  "--no-parallel-scavenge",
  "--no-allocation-site-pretenuring",
];

/** With 20 to 200 sources: 17 to 25 % less processor time for each value, 20 to 55 MB more memory. */
const OF_MANY_SOURCES = [
  "--min-semi-space-size=8",
  "--max-semi-space-size=8",
  "--heap-growing-percent=60",
  "--no-parallel-scavenge",
  "--no-allocation-site-pretenuring",
];

/** From here on the larger young generation pays. */
const MANY_SOURCES = 10;

export function betterFlags(
  sources: number,
  flags: readonly string[],
  environment: Readonly<Record<string, string | undefined>>,
): readonly string[] | null {
  const isByHand = environment.PLENUM_NODE_FLAGS !== undefined || flags.join(" ") !== OF_FEW_SOURCES.join(" ");
  return isByHand || sources < MANY_SOURCES ? null : OF_MANY_SOURCES;
}

/** The size of the young generation is fixed at the start of a process, so this executes the process again. */
export function takeBetterFlags(sources: number): void {
  const flags = betterFlags(sources, process.execArgv, process.env);
  // Windows cannot replace a process.
  if (flags === null || process.platform === "win32") return;
  process.execve?.(process.execPath, [process.execPath, ...flags, ...process.argv.slice(1)], process.env);
}
