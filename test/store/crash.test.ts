import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { expect, onTestFinished, test } from "vitest";
import { systemClock } from "#src/core/runtime/clock.ts";
import { openStore } from "#src/engine/store/open.ts";
import { valueEvent } from "../sample-events.ts";

interface Committer {
  readonly child: ChildProcess;
  said(): readonly number[];
  until(count: number): Promise<void>;
}

function committer(folder: string, first: number): Committer {
  const child = spawn(process.execPath, [join(import.meta.dirname, "committing-child.ts"), folder, String(first)], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  let text = "";
  child.stdout?.setEncoding("utf8").on("data", (part: string) => {
    text += part;
  });
  const said = () => text.split("\n").slice(0, -1).map(Number);
  return {
    child,
    said,
    async until(count) {
      await expect.poll(() => said().length, { timeout: 15_000 }).toBeGreaterThanOrEqual(count);
    },
  };
}

function temporary(): string {
  const folder = mkdtempSync(join(tmpdir(), "plenum-crash-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  return folder;
}

test("acknowledged commits and their documents survive kill -9, and the database file is intact", async () => {
  const folder = temporary();
  let next = 0;
  for (const commits of [1, 50, 300]) {
    const { child, said, until } = committer(folder, next);
    await until(commits);
    child.kill("SIGKILL");
    await once(child, "close");
    const last = said().at(-1) ?? -1;

    const store = await openStore({ folder, clock: systemClock });
    expect(await store.describe()).not.toHaveProperty("setAside");
    const ids = new Set((await store.outbox.latest(100_000)).map(({ event }) => event.id));
    for (let n = 0; n <= last; n += 1) expect(ids.has(valueEvent(n).id), `event ${n}`).toBe(true);
    // A kill between a commit and its output leaves one more event and its snapshot.
    expect(await store.document("last", "n")).toBe(ids.size - 1);
    expect(ids.size - 1 - last).toBeLessThanOrEqual(1);
    await store.close();
    const database = new DatabaseSync(join(folder, "plenum.db"));
    expect(database.prepare("pragma integrity_check").get()).toEqual({ integrity_check: "ok" });
    database.close();
    next = ids.size;
  }
});

test("the state folder is locked against other processes, and unlocked as soon as its worker is killed", async () => {
  const folder = temporary();
  const { child, until } = committer(folder, 0);
  await until(1);
  await expect(openStore({ folder, clock: systemClock })).rejects.toThrow("Another worker uses");
  const reader = await openStore({ folder, clock: systemClock, readOnly: true });
  expect((await reader.outbox.latest(1)).length).toBe(1);
  await reader.close();
  child.kill("SIGKILL");
  await once(child, "close");
  await (await openStore({ folder, clock: systemClock })).close();
});
