import { expect, test } from "vitest";
import type { QueryResult, Values } from "#src/core/postgres/session.ts";
import { detectRestore } from "#src/scale/member-databases.ts";
import type { StateDatabase } from "#src/scale/postgres/state-database.ts";

/** A database that says where it is, what it was known as, and of whom it heard last. */
function databaseAt(
  place: string,
  heard: readonly [at: string | null, seconds: number | null, isAnybodyThere: boolean],
) {
  const seen = { known: undefined as string | undefined, place, counts: 0, asked: [] as string[] };
  function run(text: string, values: Values): QueryResult["rows"] {
    seen.asked.push(text.trim().split(/\s+/).slice(0, 2).join(" "));
    if (text.includes("pg_control_system")) return [[seen.place]];
    if (text.startsWith("select body")) return seen.known === undefined ? [] : [[seen.known]];
    if (text.startsWith("insert into fleet_document")) seen.known = String(values[1]);
    if (text.startsWith("select to_char(max(seen_at)")) return [heard];
    if (text.startsWith("update sink")) seen.counts += 1;
    return [];
  }
  const query = async (text: string, values: Values = []) => ({ command: "", rows: run(text, values) });
  const session = { query, queries: async () => [] };
  const database = {
    table: (name: string) => name,
    work: (work: (own: typeof session) => unknown) => work(session),
  } as unknown as StateDatabase;
  return { seen, look: () => detectRestore(database) };
}

const AT = "2026-11-02T06:00:00.000Z";

test("the check for a restored database returns null for a new database and for an unchanged one", async () => {
  const { seen, look } = databaseAt("one", [AT, 60, false]);
  expect(await look()).toBeNull();
  expect([seen.known, seen.counts]).toEqual(['"one"', 0]);
  expect(await look()).toBeNull();
  expect(seen.counts).toBe(0);
  // Members that come at once wait for each other before they look.
  expect(seen.asked[0]).toBe("select digest");
});

test("a restored database is reported once with its age, and the sequence of every sink is reset", async () => {
  const { seen, look } = databaseAt("one", [AT, 7_200, false]);
  await look();
  seen.place = "two";
  expect(await look()).toEqual({
    lastHeardAt: AT,
    message:
      "The database is not the one that the members used last (a backup was restored, or another server took over), and it lies back 2 h: a member was heard of last at 2026-11-02T06:00:00.000Z. Receivers may get once more what they have, with the same ids, and are counted anew.",
  });
  expect(seen.counts).toBe(1);
  expect(await look()).toBeNull();
  expect(seen.counts).toBe(1);
});

test("a changed database is not reported as restored while other members run", async () => {
  const { seen, look } = databaseAt("one", [AT, 1, true]);
  await look();
  seen.place = "two";
  expect(await look()).toBeNull();
  expect([seen.known, seen.counts]).toEqual(['"two"', 0]);
});

test("a restored database is reported without members, and with age 0 when its clock is behind", async () => {
  const nobody = databaseAt("one", [null, null, false]);
  await nobody.look();
  nobody.seen.place = "two";
  expect(await nobody.look()).toMatchObject({
    lastHeardAt: null,
    message: expect.stringContaining("took over), and no member was heard of in it. Receivers"),
  });
  const behind = databaseAt("one", [AT, -5, false]);
  await behind.look();
  behind.seen.place = "two";
  expect((await behind.look())?.message).toContain("it lies back 0 s: a member");
});
