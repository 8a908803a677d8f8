import { copyFileSync, mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { systemClock } from "#src/core/runtime/clock.ts";
import { openStore } from "#src/engine/store/open.ts";
import { SQLITE_PAGE_BYTES } from "#src/engine/store/sqlite-page-format.ts";
import { replay, seed } from "../seed.ts";
import { sized } from "../sizes.ts";
import { testFolder } from "../test-resources.ts";
import { cutPower } from "./power-cut/campaign.ts";
import { canRecord } from "./power-cut/record.ts";

/** More by `npm run crash:long`. */
const CUTS = sized(1_000, 150);

describe(`data reported as durable survives a power cut intact (seed ${seed})`, () => {
  test.each([
    ["store", CUTS],
    ["file sink", CUTS],
  ] as const)("in the %s, at each of %i simulated power cuts", async (of, wanted) => {
    if (!canRecord()) {
      process.stderr.write("There is no strace that may trace here: the power cuts are skipped.\n");
      return;
    }
    const { states, broken } = await cutPower(of, wanted, seed);
    expect(states).toBeGreaterThanOrEqual(wanted);
    expect(broken.slice(0, 5), replay).toEqual([]);
  });
});

test("ignores a commit of the write-ahead log with any torn frame, without quarantining the file", async () => {
  const folder = testFolder();
  const store = await openStore({ folder, clock: systemClock });
  await store.commit({ documents: [{ set: "large", put: [["n", "x".repeat(40 * SQLITE_PAGE_BYTES)]] }] });
  const before = statSync(join(folder, "plenum.db-wal")).size;
  // This commit frees 40 pages.
  await store.commit({ documents: [{ set: "large", remove: ["n"] }] });
  const log = readFileSync(join(folder, "plenum.db-wal"));
  for (let frame = before; frame < log.length; frame += 24 + SQLITE_PAGE_BYTES) {
    const copy = join(folder, `torn-${frame}`);
    mkdirSync(copy);
    copyFileSync(join(folder, "plenum.db"), join(copy, "plenum.db"));
    const torn = Buffer.from(log).fill(0, frame + 28, frame + 24 + SQLITE_PAGE_BYTES);
    writeFileSync(join(copy, "plenum.db-wal"), torn);
    const found = await openStore({ folder: copy, clock: systemClock });
    expect((await found.describe()).quarantinedFile).toBeUndefined();
    expect(await found.document("large", "n")).toHaveLength(40 * SQLITE_PAGE_BYTES);
    await found.close();
  }
  await store.close();
});
