import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readdirSync, readFileSync, realpathSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { pino } from "pino";
import { beforeEach, describe, expect, onTestFinished, test, vi } from "vitest";
import { ConfigError, errorText } from "#src/core/errors/errors.ts";
import { systemClock } from "#src/core/runtime/clock.ts";
import { type OpenStoreOptions, openStore } from "#src/engine/store/open.ts";
import { SCHEMA_VERSION } from "#src/engine/store/schema.ts";
import { CHECKED_TABLE_NAMES } from "#src/engine/store/sqlite.ts";
import { SQLITE_PAGE_BYTES } from "#src/engine/store/sqlite-page-format.ts";
import type { Store } from "#src/engine/store/store.ts";
import { valueEvent } from "../sample-events.ts";
import { testFolder } from "../test-resources.ts";
import { editState, ids, idsOf, pragmaOf, values } from "./store-steps.ts";

const CHILD = join(import.meta.dirname, "committing-child.ts");

let folder: string;
let file: string;
beforeEach(() => {
  folder = join(testFolder(), "state");
  file = join(folder, "plenum.db");
});

const open = (options: Partial<OpenStoreOptions> = {}) => openStore({ folder, clock: systemClock, ...options });

async function refusal(options: Partial<OpenStoreOptions> = {}): Promise<string> {
  const error = await withStore(async () => null, options).catch((reason: unknown) => reason);
  expect(error).toBeInstanceOf(ConfigError);
  return errorText(error);
}

async function withStore<T>(use: (store: Store) => Promise<T>, options: Partial<OpenStoreOptions> = {}): Promise<T> {
  const store = await open(options);
  try {
    return await use(store);
  } finally {
    await store.close();
  }
}

describe("opening a state", () => {
  test("rejects a file of a newer version and tells the operator to run that version", async () => {
    await withStore(async () => {});
    editState(folder, `pragma user_version = ${SCHEMA_VERSION + 1}`);
    expect(await refusal()).toMatch(/newer Plenum \(schema \d+.*\. Run the newer version again/);
    expect(await refusal({ readOnly: true })).toMatch(/newer Plenum/);
  });

  // Most programs set no id: 0.
  test.each([7, 0])(
    "rejects a file of another program with application_id %i, and leaves the file unchanged",
    async (id) => {
      await withStore(async () => {});
      editState(folder, `pragma application_id = ${id}`);
      const before = readFileSync(file);
      expect(await refusal()).toMatch(/belongs to another program\. Set state\.folder/);
      expect(readFileSync(file)).toEqual(before);
    },
  );

  test.each([
    ["NFS", 0x6969],
    ["CIFS", 0xff534d42],
    ["CIFS", 0xff534d42 - 2 ** 32],
    ["SMB", 0x517b],
  ])("rejects a folder on a network file system: %s", async (name, type) => {
    expect(await refusal({ fileSystemType: () => type })).toMatch(
      new RegExp(`network file system \\(${name}\\)\\. Set state\\.folder to a folder on a local disk`),
    );
  });

  test("rejects a command when no worker has created a state yet", async () => {
    expect(await refusal({ readOnly: true })).toMatch(/There is no state in .* yet\. Start the worker first/);
    expect(await refusal({ locksFolder: false })).toMatch(/no state/);
    expect(existsSync(folder)).toBe(false);
  });

  test("rejects a folder that cannot be created", async () => {
    writeFileSync(join(folder, "..", "file"), "");
    expect(await refusal({ folder: join(folder, "..", "file", "state") })).toMatch(/cannot be created \(ENOTDIR\)/);
  });
});

test("a reader sees a running worker's commits and cannot write; the worker sees an operator's change", async () => {
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
    await worker.outbox.register("a", "now");
    await withStore((operator) => operator.outbox.setEnded("a", "by hand"), { locksFolder: false });
    expect(await worker.outbox.lag()).toMatchObject([{ ended: "by hand" }]);
  });
});

test("a state file of version 2 is migrated with its events and the byte count of undelivered events", async () => {
  const kept = await withStore(async (store) => {
    await store.outbox.register("a", "beginning");
    await store.commit({ events: values(0, 50) });
    return (await store.outbox.pressure()).pendingBytes;
  });
  for (const column of ["counted", "epoch", "urgent"]) editState(folder, `alter table sink drop column ${column}`);
  for (const column of ["number", "epoch"]) editState(folder, `alter table dead_letter drop column ${column}`);
  for (const table of CHECKED_TABLE_NAMES) editState(folder, `alter table ${table} drop column checksum`);
  editState(folder, "drop table damaged; alter table event drop column written");
  editState(folder, "alter table log_size drop column written; pragma user_version = 2");
  editState(folder, "drop table age_mark; create table settled (at_ms integer primary key, position integer) strict");
  await withStore(async (store) => {
    expect((await store.outbox.pressure()).pendingBytes).toBe(kept);
    expect((await store.describe()).damaged).toEqual([]);
    const { counted, events } = await store.outbox.next("a", 100);
    expect(counted).toEqual({ epoch: expect.stringMatching(/^[0-9a-f]{16}$/) as string, number: 0 });
    expect(events.map(({ event }) => event)).toEqual(values(0, 50));
    await store.commit({ events: [valueEvent(50)] });
    expect((await store.outbox.pressure()).pendingBytes).toBeGreaterThan(kept);
  });
});

test("a new state has pages of 2 kB, and its write-ahead log is checkpointed after 4 MiB", async () => {
  const largest = await withStore(async (store) => {
    let bytes = 0;
    for (let n = 0; n < 200; n += 1) {
      await store.commit({ documents: [{ set: "wide", put: [["key", `${n}`.repeat(50_000)]] }] });
      bytes = Math.max(bytes, statSync(`${file}-wal`).size);
    }
    return bytes;
  });
  expect(largest).toBeGreaterThan(4 * 1024 ** 2);
  expect(largest).toBeLessThan(5 * 1024 ** 2);
  expect([pragmaOf(folder, "page_size"), pragmaOf(folder, "auto_vacuum")]).toEqual([SQLITE_PAGE_BYTES, 2]);
});

describe("a damaged state file", () => {
  test.each([
    ["content other than a database", () => writeFileSync(file, "no pages of a database ".repeat(1_000))],
    ["overwritten pages in the middle", () => spoil(SQLITE_PAGE_BYTES * 2)],
    ["an overwritten header", () => spoil(0)],
  ])("with %s is quarantined and reported, and its readable events are copied to a new file", async (_, damage) => {
    await withStore((store) => store.commit({ events: values(0, 500) }));
    damage();
    writeFileSync(`${file}-wal`, "what a kill left");
    const spoiled = readFileSync(file);
    const aside = await withStore(async (store) => {
      const found = idsOf(await store.outbox.latest(1_000));
      const written = new Set(ids(values(0, 500)));
      expect(found.filter((id) => !written.has(id))).toEqual([]);
      const { quarantinedFile: quarantined, recoveryMessage: takenOver } = await store.describe();
      expect(takenOver).toContain(`${found.length} events that a sink had not got were taken over`);
      await store.commit({ events: [valueEvent(1_000)] });
      return quarantined;
    });
    expect(aside).toMatch(/plenum\.db\.damaged-\d{4}-/);
    expect(readFileSync(aside ?? "")).toEqual(spoiled);
    expect(readFileSync(`${aside}-wal`, "utf8")).toBe("what a kill left");
    await withStore(async (store) => {
      expect(await store.describe()).not.toHaveProperty("quarantinedFile");
      expect((await store.outbox.latest(1))[0]?.event.id).toBe(valueEvent(1_000).id);
    });
  });

  function spoil(offset: number): void {
    const bytes = readFileSync(file);
    bytes.fill(0xa5, offset, offset + SQLITE_PAGE_BYTES * 8);
    writeFileSync(file, bytes);
  }
});

/** Leaves the files as a kill does: a commit is in the write-ahead log only. */
async function createKilledState(): Promise<void> {
  const store = await open();
  await store.outbox.register("a", "beginning");
  await store.commit({ events: [valueEvent(1)] });
  const left = ["", "-wal"].map((side) => [file + side, readFileSync(file + side)] as const);
  await store.close();
  for (const [name, bytes] of left) writeFileSync(name, bytes);
}

describe("a state file that was lost after a crash", () => {
  test.each([
    ["empty", () => writeFileSync(file, "")],
    ["gone", () => rmSync(file)],
  ])("is reported if the file is %s, and its write-ahead log is quarantined", async (word, lose) => {
    await createKilledState();
    const wal = readFileSync(`${file}-wal`);
    writeFileSync(`${file}-shm`, "its index");
    lose();
    const lines: string[] = [];
    const log = pino({}, { write: (line) => void lines.push(line) });
    const aside = await withStore(async (store) => (await store.describe()).quarantinedFile, { log });
    expect(readFileSync(`${aside}-wal`)).toEqual(wal);
    expect(readFileSync(`${aside}-shm`, "utf8")).toBe("its index");
    expect(readFileSync(aside ?? "", "utf8")).toBe("");
    expect(lines.join()).toContain(`${word}, and ${wal.length} bytes of its write-ahead log are left`);
    expect(lines.join()).toContain("set aside");
  });

  test("is not reported for an empty file without a write-ahead log", async () => {
    await withStore(async () => {});
    writeFileSync(file, "");
    await withStore(async (store) => expect(await store.describe()).not.toHaveProperty("quarantinedFile"));
  });
});

describe("a write-ahead log that was lost after a crash", () => {
  const lostLog = () =>
    withStore(async (store) => {
      await store.outbox.register("a", "beginning");
      await store.commit({ events: [valueEvent(2)] });
      const { counted } = await store.outbox.next("a", 1);
      return { lostLog: (await store.describe()).lostLogMessage, epoch: counted?.epoch };
    });

  test.each([
    ["deleted", () => rmSync(`${file}-wal`)],
    ["empty", () => writeFileSync(`${file}-wal`, "")],
    ["unreadable", () => writeFileSync(`${file}-wal`, readFileSync(`${file}-wal`).fill(0, 8, 24))],
  ])("is reported once if the log is %s, and every sink starts a new sequence epoch", async (_, lose) => {
    await createKilledState();
    const before = await lostLog();
    await createKilledState();
    lose();
    const after = await lostLog();
    expect(before.lostLog).toBeUndefined();
    expect(after.lostLog).toMatch(/write-ahead log \(plenum\.db-wal\) is missing or cannot be read/);
    expect(after.epoch).not.toBe(before.epoch);
    expect((await lostLog()).lostLog, "once").toBeUndefined();
  });

  test("is not reported after a regular stop", async () => {
    await withStore((store) => store.commit({ events: [valueEvent(1)] }));
    expect(existsSync(`${file}-wal`)).toBe(false);
    expect((await lostLog()).lostLog).toBeUndefined();
  });
});

describe("a lock file with unexpected content", () => {
  const DAMAGED_LOCK_FILES = [
    ["a text", Buffer.from("pid 4711\n".repeat(100))],
    ["half a header", Buffer.from(`SQLite format 3\0${"z".repeat(5_000)}`)],
    ["noise", Buffer.alloc(8_192, 0xa5)],
    ["a byte", Buffer.from("x")],
  ] as const;

  test.each(DAMAGED_LOCK_FILES)(
    "%s: no second worker starts; the next worker keeps a copy of the content",
    async (_, content) => {
      const lock = join(folder, "worker.lock");
      const holder = spawn(process.execPath, [CHILD, folder, "0"], { stdio: ["ignore", "pipe", "inherit"] });
      await once(holder.stdout, "data");
      writeFileSync(lock, content);
      expect(await refusal()).toMatch(/Another worker uses/);
      expect(readFileSync(lock)).toEqual(content);
      holder.kill("SIGKILL");
      await once(holder, "close");
      await withStore(async () => {});
      const kept = readdirSync(folder).filter((name) => name.startsWith("worker.lock"));
      expect(kept.map((name) => readFileSync(join(folder, name)))).toContainEqual(content);
    },
  );
});

test("commits of the worker and of operators are synced to the disk", async () => {
  const exec = vi.spyOn(DatabaseSync.prototype, "exec");
  onTestFinished(() => exec.mockRestore());
  /** `pragma synchronous` of each open connection: 2 is FULL; in WAL mode 1 syncs no commit. */
  const levels = () =>
    [...new Set(exec.mock.contexts as DatabaseSync[])]
      .filter((database) => database.isOpen && database.location() === realpathSync(file))
      .map((database) => database.prepare("pragma synchronous").get()?.synchronous);
  await withStore(async () => {
    expect(levels()).toEqual([2]);
    await withStore(async () => expect(levels()).toEqual([2, 2]), { locksFolder: false });
  });
});

test("the state folder and its files are accessible to their owner only", async () => {
  await withStore(async (store) => {
    await store.commit({ events: [valueEvent(1)] });
    expect(statSync(folder).mode & 0o777).toBe(0o700);
    const files = readdirSync(folder);
    expect(files).toEqual(expect.arrayContaining(["plenum.db", "plenum.db-wal", "plenum.db-shm", "worker.lock"]));
    for (const name of files) expect([name, statSync(join(folder, name)).mode & 0o777]).toEqual([name, 0o600]);
  });
});
