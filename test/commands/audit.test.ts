import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { expect, test } from "vitest";
import type { AuditHead } from "#src/core/model/command-event-data.ts";
import { systemClock } from "#src/core/runtime/clock.ts";
import { verifyAudit } from "#src/engine/commands/audit/audit-log.ts";
import { openStore } from "#src/engine/store/open.ts";
import { openHarness, TAGS } from "./test-harness.ts";

async function verdictOf(folder: string, expected: AuditHead | null = null) {
  const store = await openStore({ folder, clock: systemClock, readOnly: true });
  const verdict = await verifyAudit(store, expected);
  await store.close();
  return verdict;
}

test("the verification of the audit log finds a changed, removed or moved record", async () => {
  const harness = await openHarness();
  for (const [n, tag] of TAGS.slice(0, 3).entries()) await harness.send({ id: `${n}`, tag, value: 21 });
  await harness.send({ id: "stranger", tag: "?", value: 21 });
  await harness.clock.advance(10_000);
  const audit = await harness.audit();
  expect(audit).toHaveLength(10);
  expect(audit[0]?.detail).toMatchObject({
    value: 21,
    by: "broker plenum/cmd/main/set",
    limits: { min: 15, max: 25, max_per_day: 48 },
  });
  expect(await verdictOf(harness.folder)).toMatchObject({ records: 10, brokenAt: null });

  const database = new DatabaseSync(join(harness.folder, "plenum.db"));
  const restoreAfter = async (change: () => void, expected: (brokenAt: number | null) => void) => {
    database.exec("create temp table kept as select * from record");
    change();
    expected((await verdictOf(harness.folder)).brokenAt);
    database.exec("delete from record; insert into record select * from kept; drop table kept");
  };
  for (let row = 1; row <= 10; row += 1) {
    await restoreAfter(
      () =>
        void database
          .prepare("update record set body = replace(body, '21', '22') where sequence = ? and log = 'audit'")
          .run(row),
      (brokenAt) => {
        const text = JSON.stringify(audit[row - 1]);
        if (text.includes("21")) expect(brokenAt, `changed ${row}`).toBe(row);
      },
    );
    await restoreAfter(
      () => void database.prepare("delete from record where sequence = ? and log = 'audit'").run(row),
      (brokenAt) => expect(brokenAt, `taken out ${row}`).toBe(row === 10 ? null : row + 1),
    );
    if (row === 10) continue;
    await restoreAfter(
      () => {
        const move = database.prepare("update record set sequence = ? where sequence = ? and log = 'audit'");
        move.run(1000, row);
        move.run(row, row + 1);
        move.run(row + 1, 1000);
      },
      (brokenAt) => expect(brokenAt, `moved ${row}`).toBe(row),
    );
  }
  expect(await verdictOf(harness.folder)).toMatchObject({ records: 10, brokenAt: null });
  database.close();
});

test("the event audit-head is emitted at each write and hourly, and reveals a changed audit log", async () => {
  const harness = await openHarness();
  const [first = "", second = ""] = TAGS;
  await harness.send({ id: "a", tag: first, value: 21 });
  await harness.clock.advance(10_000);
  const heads = async () => {
    const events = await harness.store.outbox.latest(1_000);
    return events.flatMap(({ event }) => (event.type === "audit-head" ? [event.data as AuditHead] : [])).reverse();
  };
  const [kept = { records: 0, head: "" }] = await heads();
  await harness.clock.advance(3_600_000);
  const audit = await harness.audit();
  expect(kept.head).toBe(audit[kept.records - 1]?.hash);
  expect((await heads()).at(-1)).toEqual({ records: audit.length, head: audit.at(-1)?.hash });
  await harness.send({ id: "b", tag: second, value: 21 });
  await harness.clock.advance(10_000);

  const expecting = async (change: string) => {
    const database = new DatabaseSync(join(harness.folder, "plenum.db"));
    database.exec(change);
    database.close();
    return verdictOf(harness.folder, kept);
  };
  expect(await expecting("select 1")).toMatchObject({ brokenAt: null, hasExpected: true });
  expect(await expecting("delete from record where log = 'audit' and sequence > 1")).toMatchObject({
    records: 1,
    brokenAt: null,
    hasExpected: false,
  });
  expect(await expecting("delete from record where log = 'audit'")).toMatchObject({ records: 0, hasExpected: false });
});

test("the event audit-head is emitted hourly even before the clocks of worker and service were compared", async () => {
  const harness = await openHarness();
  await harness.send({ id: "a", tag: "nobody-allowed-it", value: 21 });
  await harness.clock.advance(60_000);
  const heads = async () => (await harness.store.outbox.latest(1_000, ["audit-head"])).length;
  const before = await heads();
  expect(harness.source.clockSkewMs()).toBeNull();
  await harness.clock.advance(2 * 3_600_000);
  expect(await heads()).toBe(before + 2);
});
