import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { expect, test } from "vitest";
import { systemClock } from "#src/core/runtime/clock.ts";
import { openStore } from "#src/engine/store/open.ts";
import { testFolder } from "../test-resources.ts";
import { ids, idsOf, pragmaOf, values } from "./store-steps.ts";

function committer(folder: string, first: number) {
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
    async until(count: number) {
      await expect.poll(() => said().length).toBeGreaterThanOrEqual(count);
    },
  };
}

test("acknowledged commits and their documents survive kill -9, and the database file is intact", async () => {
  const folder = testFolder();
  let next = 0;
  for (const commits of [1, 50, 300]) {
    const { child, said, until } = committer(folder, next);
    await until(commits);
    child.kill("SIGKILL");
    await once(child, "close");
    const last = said().at(-1) ?? -1;

    const store = await openStore({ folder, clock: systemClock });
    expect(await store.describe()).not.toHaveProperty("quarantinedFile");
    const found = new Set(idsOf(await store.outbox.latest(100_000)));
    expect(ids(values(0, last + 1)).filter((id) => !found.has(id))).toEqual([]);
    // A kill between a commit and its output leaves one more event and its snapshot.
    expect(await store.document("last", "n")).toBe(found.size - 1);
    expect(found.size - 1 - last).toBeLessThanOrEqual(1);
    await store.close();
    expect(pragmaOf(folder, "integrity_check")).toBe("ok");
    next = found.size;
  }
});
