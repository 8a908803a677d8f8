import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { expect, test } from "vitest";

const ROOT = join(import.meta.dirname, "..");

/** MiB that become old in 200 rounds of work with 50 objects of 8 kB each: 78 if nothing is released. */
function oldSpaceGrowthMib(name: string, file: string, work: string): number {
  const program = `
    import { getHeapSpaceStatistics } from "node:v8";
    import { ${name} } from ${JSON.stringify(pathToFileURL(join(ROOT, file)).href)};
    const oldBytes = () => getHeapSpaceStatistics().find((each) => each.space_name === "old_space").space_used_size;
    const shared = new AbortController().signal;
    const prepare = () => { ${work} };
    const doWith = prepare();
    const begun = oldBytes();
    for (let round = 0; round < 200; round += 1) {
      doWith(Array.from({ length: 50 }, (_, n) => ({ id: ((50 * round + n) % 60_000) + 1, load: new Array(1_000).fill(n) })));
      // One major collection first, after which the remaining objects count as old.
      gc({ type: round === 5 ? "major" : "minor" });
    }
    console.log((oldBytes() - begun) / 1024 ** 2);`;
  // Large heaps, so that no other collection runs in between.
  const flags = ["--expose-gc", "--max-semi-space-size=16", "--initial-heap-size=1024"];
  const { stdout, stderr } = spawnSync(process.execPath, [...flags, "--input-type=module", "-e", program], {
    encoding: "utf8",
  });
  expect(stderr).toBe("");
  return Number(stdout);
}

const IN_FLIGHT = `
  const sent = [];
  return (things) => {
    for (const thing of things) {
      add(thing);
      sent.push(thing.id);
      if (sent.length > 20) take(sent.shift());
    }
    while (sent.length > 0) take(sent.shift());
  };`;

const LISTENING = `
  return (things) => {
    for (const thing of things) {
      using followed = follow(shared);
      followed.signal.addEventListener("abort", () => thing.load);
    }
  };`;

test.each([
  [
    "messages that were acknowledged",
    "createUnacknowledgedQueue",
    "connectors/mqtt/unacknowledged-messages.ts",
    `const { add, take } = createUnacknowledgedQueue(); ${IN_FLIGHT}`,
    `const map = new Map(); const add = (thing) => map.set(thing.id, thing); const take = (id) => map.delete(id); ${IN_FLIGHT}`,
  ],
  [
    "listeners of a combined signal",
    "combineSignals",
    "src/core/runtime/waiting.ts",
    `const follow = combineSignals; ${LISTENING}`,
    `const follow = (signal) => ({ signal: AbortSignal.any([signal]), [Symbol.dispose]() {} }); ${LISTENING}`,
  ],
])(
  "%s are freed by a minor garbage collection, unlike with the built-in equivalent of Node.js",
  (_, name, file, ours, theirs) => {
    expect(oldSpaceGrowthMib(name, file, theirs)).toBeGreaterThan(20);
    expect(oldSpaceGrowthMib(name, file, ours)).toBeLessThan(5);
  },
);
