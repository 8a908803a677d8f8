import { describe, expect, test } from "vitest";
import { systemClock } from "#src/core/runtime/clock.ts";
import { openStore } from "#src/engine/store/open.ts";
import { documentSet } from "#src/engine/store/store.ts";
import { workplace } from "./plenum.ts";

describe("plenum silence", () => {
  test("adds, lists and ends a silence, and rejects wrong options with a message", async () => {
    const { configure, path, plenum } = workplace("http://127.0.0.1:9");
    configure();
    const store = await openStore({ folder: path("state"), clock: systemClock });
    await store.commit({ documents: [{ set: documentSet("site", "main"), put: [["3", { id: 3 }]] }] });
    await store.close();
    const add = (...args: readonly string[]) => plenum("silence", "add", ...args);

    for (const [args, sentence] of [
      [["--for", "1h", "--reason", "x"], "That would silence every alarm of every building."],
      [["--site", "3", "--for", "1h", "--reason", " "], "Say why, in 500 characters at most."],
      [["--site", "3", "--for", "500d", "--reason", "x"], "A silence lasts a year at most."],
      [["--source", "west", "--for", "1h", "--reason", "x"], "There is no source west; known are: "],
    ] as const) {
      const { code, stderr } = await add(...args);
      expect([code, stderr]).toEqual([78, expect.stringContaining(sentence)]);
    }

    const made = await add("--site", "3", "--priority", "B,C", "--for", "4h", "--reason", "The boiler", "--json");
    const silence = JSON.parse(made.stdout) as { readonly id: string };
    expect(silence).toMatchObject({ site: 3, priorities: ["B", "C"], reason: "The boiler", madeBy: "cli" });
    expect((await plenum("silence")).stdout).toMatch(/ alarms of priority B, C of site 3 +The boiler +cli\n$/);
    expect((await plenum("silence", "end", silence.id)).code).toBe(0);
    expect((await plenum("silence", "end", silence.id)).code).toBe(78);
  });
});
