import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { systemClock } from "#src/clock.ts";
import { ConfigError, sentence } from "#src/errors.ts";
import { openStore, type StoreOptions } from "#src/store/open.ts";
import type { Store } from "#src/store/store.ts";
import { valueEvent } from "../sample-events.ts";

let folder: string;
let file: string;
beforeEach(() => {
  folder = join(mkdtempSync(join(tmpdir(), "plenum-store-")), "state");
  file = join(folder, "plenum.db");
});
afterEach(() => rmSync(join(folder, ".."), { recursive: true }));

const open = (options: Partial<StoreOptions> = {}) => openStore({ folder, clock: systemClock, ...options });

async function refusal(options: Partial<StoreOptions> = {}): Promise<string> {
  const error = await open(options).then(
    async (store) => {
      await store.close();
      return null;
    },
    (reason: unknown) => reason,
  );
  expect(error).toBeInstanceOf(ConfigError);
  return sentence(error);
}

async function withStore<T>(
  use: (store: Store) => Promise<T>,
  options: Partial<StoreOptions> = {},
): Promise<T> {
  const store = await open(options);
  try {
    return await use(store);
  } finally {
    await store.close();
  }
}

function edit(sql: string): void {
  const database = new DatabaseSync(file);
  database.exec(sql);
  database.close();
}

describe("what is refused, with one sentence that says what to do", () => {
  test("a file of a newer version", async () => {
    await withStore(async () => {});
    edit("pragma user_version = 99");
    expect(await refusal()).toMatch(/newer Plenum \(schema 99.*\. Run the newer version again/);
    expect(await refusal({ readOnly: true })).toMatch(/newer Plenum/);
  });

  test("a file of another program, which stays as it is", async () => {
    await withStore(async () => {});
    edit("pragma application_id = 7");
    const before = readFileSync(file);
    expect(await refusal()).toMatch(/belongs to another program\. Set state\.folder/);
    expect(readFileSync(file)).toEqual(before);
  });

  test.each([
    ["NFS", 0x6969],
    ["CIFS", 0xff534d42],
    ["CIFS", 0xff534d42 - 2 ** 32],
    ["SMB", 0x517b],
  ])("a network file system: %s", async (name, type) => {
    expect(await refusal({ fileSystemType: () => type })).toMatch(
      new RegExp(`network file system \\(${name}\\)\\. Set state\\.folder to a folder on a local disk`),
    );
  });

  test("a second worker, until the first has ended", async () => {
    await withStore(async () => {
      expect(await refusal()).toMatch(/Another worker uses the state folder .*\. Stop it/);
    });
    await withStore(async () => {});
  });

  test("a command without a worker's state", async () => {
    expect(await refusal({ readOnly: true })).toMatch(/There is no state in .* yet\. Start the worker first/);
    expect(await refusal({ lock: false })).toMatch(/no state/);
    expect(existsSync(folder)).toBe(false);
  });

  test("a folder that cannot be", async () => {
    writeFileSync(join(folder, "..", "file"), "");
    expect(await refusal({ folder: join(folder, "..", "file", "state") })).toMatch(
      /cannot be created \(ENOTDIR\)/,
    );
  });
});

describe("beside a running worker", () => {
  test("a reader sees what is committed and can change nothing", async () => {
    await withStore(async (worker) => {
      await worker.commit({ events: [valueEvent(1)] });
      await withStore(
        async (reader) => {
          expect(await reader.outbox.latest(5)).toHaveLength(1);
          await worker.commit({ events: [valueEvent(2)] });
          expect(await reader.outbox.latest(5)).toHaveLength(2);
          await expect(reader.commit({ events: [valueEvent(3)] })).rejects.toThrow(ConfigError);
        },
        { readOnly: true },
      );
    });
  });

  test("an operator's change reaches the worker", async () => {
    await withStore(async (worker) => {
      await worker.outbox.register("a", "now");
      await withStore((operator) => operator.outbox.setEnded("a", "by hand"), { lock: false });
      expect(await worker.outbox.lag()).toMatchObject([{ ended: "by hand" }]);
    });
  });
});

describe("a file of an older version", () => {
  test("is brought up to date; the bytes that sinks have to take are counted for what it held", async () => {
    const kept = await withStore(async (store) => {
      await store.outbox.register("a", "beginning");
      await store.commit({ events: Array.from({ length: 50 }, (_, n) => valueEvent(n)) });
      return (await store.outbox.pressure()).pendingBytes;
    });
    edit("alter table event drop column written; alter table log_size drop column written");
    edit("drop table age_mark; create table settled (at_ms integer primary key, position integer) strict");
    edit("pragma user_version = 2");
    await withStore(async (store) => {
      expect((await store.outbox.pressure()).pendingBytes).toBe(kept);
      await store.commit({ events: [valueEvent(50)] });
      expect((await store.outbox.pressure()).pendingBytes).toBeGreaterThan(kept);
    });
  });
});

describe("damage", () => {
  test.each([
    [
      "not a database at all",
      () => writeFileSync(file, "these are not the pages you are looking for ".repeat(500)),
    ],
    ["pages overwritten in the middle", () => spoil(4096 * 2)],
    ["the header overwritten", () => spoil(0)],
  ])("%s: set aside whole, said, and a fresh file begun", async (_, damage) => {
    await withStore((store) =>
      store.commit({ events: Array.from({ length: 500 }, (_, n) => valueEvent(n)) }),
    );
    damage();
    const spoiled = readFileSync(file);
    const aside = await withStore(async (store) => {
      expect(await store.outbox.latest(5)).toEqual([]);
      await store.commit({ events: [valueEvent(1)] });
      return (await store.describe()).setAside;
    });
    expect(aside).toMatch(/plenum\.db\.damaged-\d{4}-/);
    expect(readFileSync(aside ?? "")).toEqual(spoiled);
    await withStore(async (store) => {
      expect(await store.describe()).not.toHaveProperty("setAside");
      expect(await store.outbox.latest(5)).toHaveLength(1);
    });
  });

  function spoil(offset: number): void {
    const bytes = readFileSync(file);
    bytes.fill(0xa5, offset, offset + 4096 * 8);
    writeFileSync(file, bytes);
  }
});

test("folder and files are for their owner only", async () => {
  await withStore(async (store) => {
    await store.commit({ events: [valueEvent(1)] });
    expect(statSync(folder).mode & 0o777).toBe(0o700);
    const files = readdirSync(folder);
    expect(files).toEqual(
      expect.arrayContaining(["plenum.db", "plenum.db-wal", "plenum.db-shm", "worker.lock"]),
    );
    for (const name of files)
      expect([name, statSync(join(folder, name)).mode & 0o777]).toEqual([name, 0o600]);
  });
});
