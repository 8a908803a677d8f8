import { chownSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { errorText, Retryable } from "#src/core/errors/errors.ts";
import { absent, startPostgres } from "../../real-servers.ts";
import { valueEvent } from "../../sample-events.ts";
import { smallDisk } from "../../small-disk.ts";
import { createHarness } from "./postgres-harness.ts";

const DISK_MB = 16;

describe.skipIf(absent("postgres"))("a database whose disk is full", () => {
  test("rejects a commit with one clear message, loses no event, and accepts commits when there is space again", async (context) => {
    const disk = smallDisk(DISK_MB);
    if (disk === null) return context.skip();
    const server = await startPostgres({ lines: ["fsync = off"] });
    onTestFinished(() => server.stop());
    const { gid, uid } = statSync(server.folder);
    chownSync(disk, uid, gid);
    const harness = createHarness(server);
    await harness.query(`create tablespace small location '${disk}'`);
    // The setting applies to each later session of the role.
    await harness.query("alter role postgres set default_tablespace = 'small'");
    const store = await harness.open().then(async (database) => {
      await harness.acquire(1);
      return harness.shard(database);
    });
    onTestFinished(() => harness.close());

    const ballast = join(disk, "ballast");
    writeFileSync(ballast, Buffer.alloc((DISK_MB - 5) * 1024 ** 2));
    let committed = 0;
    let refusal: unknown = null;
    while (refusal === null && committed < 100_000) {
      const events = Array.from({ length: 100 }, (_, n) => valueEvent(committed + n));
      try {
        await store.commit({ events });
        committed += events.length;
      } catch (error) {
        refusal = error;
      }
    }
    expect(refusal).toBeInstanceOf(Retryable);
    expect(errorText(refusal)).toMatch(
      /^The database server at 127\.0\.0\.1:\d+ has no room on its disk: .*No space left on device.*\(53100\)\. Make room on it/,
    );
    const known = async () => Number((await harness.query(`select count(*) from ${harness.schema}.event`))[0]?.[0]);
    expect(await known()).toBe(committed);

    rmSync(ballast);
    await store.commit({ events: Array.from({ length: 100 }, (_, n) => valueEvent(committed + n)) });
    expect(await known()).toBe(committed + 100);
    await store.close();
  });
});
