import { expect, test } from "vitest";
import { systemClock } from "#src/core/runtime/clock.ts";
import {
  RESTORE_SET,
  type Restore,
  UNRESTORED_SET,
  type UnrestoredValue,
} from "#src/engine/commands/pending-value-restores.ts";
import { openStore } from "#src/engine/store/open.ts";
import { openHarness } from "./plenum.ts";

const AT = "2026-11-20T12:00:00.000Z";

test("plenum writes restores lists failed restores of tag values first, then pending restores", async () => {
  const cli = openHarness("http://127.0.0.1:9");
  const lost: UnrestoredValue = {
    ...{ commandId: "a", source: "main", siteId: 1, tagId: "10001", inForce: 22, since: AT, wanted: 20, dueAt: AT },
    ...{ reason: "expired", message: "The gateway is offline.", toldAt: AT },
  };
  const command = { id: "b", source: "main", siteId: 1, tagId: "10002", value: 23 };
  const waiting = { command, before: 21, dueAt: AT } as unknown as Restore;
  const store = await openStore({ folder: cli.path("state"), clock: systemClock });
  await store.commit({
    documents: [
      { set: UNRESTORED_SET, put: [["main/10001", lost]] },
      { set: RESTORE_SET, put: [["main/10002", waiting]] },
    ],
  });
  await store.close();
  const restoresOutput = await cli.plenum("writes", "restores");
  expect(restoresOutput.code).toBe(0);
  expect(restoresOutput.stdout.split("\n").slice(0, 2)).toEqual([
    expect.stringMatching(/^! Tag 10001 still holds 22, written by a .*Set it right by hand\.$/),
    expect.stringMatching(/^Tag 10002 holds 23; 21 is put back at .* by b\/restore\.$/),
  ]);
  const { stdout } = await cli.plenum("writes", "restores", "--json");
  expect(JSON.parse(stdout)).toMatchObject({ lost: [{ tagId: "10001" }], waiting: [{ id: "b/restore" }] });
});
