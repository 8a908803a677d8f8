import { execFileSync, spawnSync } from "node:child_process";
import { cpSync, mkdirSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { systemClock } from "#src/core/runtime/clock.ts";
import { openStore } from "#src/engine/store/open.ts";
import { checkStateInFolder, isStateIntact } from "#src/engine/store/state-check.ts";
import { temporaryFolder } from "../real-servers.ts";
import { valueEvent } from "../sample-events.ts";
import { closeAfterTest } from "../test-resources.ts";
import { blocksIn, pages } from "./markdown.ts";

/** Backup and restore of a state in use, with the commands of docs/operations.md. */

const operations = pages.filter(({ file }) => file === "docs/operations.md");
const [backup] = operations.flatMap(blocksIn).filter(({ text }) => text.includes(".backup"));
const hasSqlite = spawnSync("sqlite3", ["--version"]).status === 0;

async function openStoreIn(folder: string) {
  return closeAfterTest(await openStore({ folder: join(folder, "state"), clock: systemClock }));
}

test.skipIf(!hasSqlite)(
  "a backup of a running worker is intact and restores the state at the time of the backup",
  async () => {
    const folder = temporaryFolder("backup");
    const store = await openStoreIn(folder);
    await store.commit({ events: [valueEvent(1), valueEvent(2)] });
    execFileSync("sh", ["-ec", backup?.text ?? "exit 1"], { cwd: folder });
    await store.commit({ events: [valueEvent(3)] });
    const restoredFolder = temporaryFolder("restored");
    mkdirSync(join(restoredFolder, "state"), { mode: 0o700 });
    cpSync(join(folder, "backup", "plenum.db"), join(restoredFolder, "state", "plenum.db"));
    expect(isStateIntact(checkStateInFolder(join(restoredFolder, "state")))).toBe(true);
    const restoredStore = await openStoreIn(restoredFolder);
    expect((await restoredStore.outbox.latest(10)).map(({ event }) => event.id).toSorted()).toEqual(
      [valueEvent(1), valueEvent(2)].map(({ id }) => id).toSorted(),
    );
  },
);

test("docs/operations.md names all files of a state folder in use", async () => {
  const folder = temporaryFolder("state");
  const store = await openStoreIn(folder);
  await store.commit({ events: [valueEvent(1)] });
  const [{ text } = { text: "" }] = operations;
  const table = /## Files of the state\n([\s\S]*?)\n## /.exec(text)?.[1] ?? "";
  for (const file of readdirSync(join(folder, "state"))) expect(table).toContain(`\`${file}\``);
});
