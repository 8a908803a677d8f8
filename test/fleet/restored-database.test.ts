import { expect, test } from "vitest";
import type { SqlResult, SqlValues } from "#src/core/postgres/session.ts";
import { detectBackupRestore } from "#src/scale/fleet-member-databases.ts";
import type { StateDatabase } from "#src/scale/postgres/state-database.ts";

const AT = "2026-11-02T06:00:00.000Z";

/** A database with the identity "one", and the answer to the query for the last heartbeat. */
function databaseWith(lastHeartbeat: readonly [at: string | null, seconds: number | null, hasRunningMember: boolean]) {
  const state = { stored: undefined as string | undefined, identity: "one", resets: 0, queries: [] as string[] };
  function run(text: string, values: SqlValues): SqlResult["rows"] {
    state.queries.push(text);
    if (text.includes("pg_control_system")) return [[state.identity]];
    if (text.startsWith("select body")) return state.stored === undefined ? [] : [[state.stored]];
    if (text.startsWith("insert into fleet_document")) state.stored = String(values[1]);
    if (text.startsWith("select to_char(max(seen_at)")) return [lastHeartbeat];
    if (text.startsWith("update sink")) state.resets += 1;
    return [];
  }
  const query = async (text: string, values: SqlValues = []) => ({ command: "", rows: run(text, values) });
  const database = {
    table: (name: string) => name,
    transaction: (work: (session: object) => unknown) => work({ query, runQueries: async () => [] }),
  } as unknown as StateDatabase;
  return { state, detect: () => detectBackupRestore(database) };
}

test("a restored database is reported once with its age, and the sequence of every sink is reset", async () => {
  const { state, detect } = databaseWith([AT, 7_200, false]);
  expect([await detect(), await detect()]).toEqual([null, null]);
  expect([state.stored, state.resets]).toEqual(['"one"', 0]);
  expect(state.queries[0]).toBe("select digest from meta for update");
  state.identity = "two";
  expect(await detect()).toEqual({
    lastHeardAt: AT,
    message:
      "The database is not the one that the members used last (a backup was restored, or another server took over), and it lies back 2 h: a member was heard of last at 2026-11-02T06:00:00.000Z. Receivers may get events again, with the same ids, and their sequence numbers start again.",
  });
  expect(state.resets).toBe(1);
  expect(await detect()).toBeNull();
  expect(state.resets).toBe(1);
});

test.each([
  ["is not reported while other members run", [AT, 1, true], null],
  ["is reported without members", [null, null, false], "took over), and no member was heard of in it. Receivers"],
  ["is reported with age 0 when its clock is behind", [AT, -5, false], "it lies back 0 s: a member"],
] as const)("a database with another identity %s", async (_, lastHeartbeat, message) => {
  const { state, detect } = databaseWith(lastHeartbeat);
  await detect();
  state.identity = "two";
  const restored = await detect();
  if (message === null) expect(restored).toBeNull();
  else expect(restored).toMatchObject({ lastHeardAt: lastHeartbeat[0], message: expect.stringContaining(message) });
  expect([state.stored, state.resets]).toEqual(['"two"', message === null ? 0 : 1]);
});
