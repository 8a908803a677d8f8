import { expect, test } from "vitest";
import { systemClock } from "#src/core/runtime/clock.ts";
import { isoUtc } from "#src/core/values/iso-utc.ts";
import { AUDIT_LOG, AUDIT_START_HASH, type AuditRecord, hashEntry } from "#src/engine/commands/audit/audit-log.ts";
import { openStore } from "#src/engine/store/open.ts";
import { openHarness } from "./plenum.ts";

const DAY_MS = 86_400_000;

async function createAuditLog() {
  const cli = openHarness("http://127.0.0.1:9");
  const entry = (name: string) => ({
    base_url: `http://127.0.0.1:9/${name}`,
    token: cli.token(name),
    time_zone: "UTC",
  });
  cli.configure({ sources: { north: entry("north"), south: entry("south") } });
  const store = await openStore({ folder: cli.path("state"), clock: systemClock });
  let tip = AUDIT_START_HASH;
  const record = (days: number, commandId: string, step: string, detail: AuditRecord["detail"]) => {
    const entry = hashEntry(tip, { at: isoUtc(systemClock.now() - days * DAY_MS), commandId, step, detail });
    tip = entry.hash;
    return { log: AUDIT_LOG, body: entry };
  };
  const command = (days: number, id: string, source: string, tagId: string, end: string) => [
    record(days, id, "accepted", { source, tagId, value: 21 }),
    record(days, id, "sending", { before: 20, group: [id] }),
    record(days, id, end, { message: "so it ended" }),
  ];
  await store.commit({
    records: [
      ...command(9, "a", "north", "10001", "confirmed"),
      ...command(5, "b", "south", "10001", "mismatch"),
      record(4, "c", "rejected", { tagId: "10002", message: "out of range" }),
      record(3, "-", "armed", { by: "anna" }),
      ...command(1, "d", "north", "10002", "confirmed"),
    ],
  });
  await store.close();
  return cli;
}

test("plenum audit show lists the audit records that match its filters, oldest first", async () => {
  const cli = await createAuditLog();
  const idsByOptions = {
    "": "a a a b b b c - d d d",
    "--last 2": "d d",
    "--command a,b": "a a a b b b",
    "--tag 10001": "a a a b b b",
    "--tag 10001 --source south": "b b b",
    "--since 6d": "b b b c - d d d",
    "--since 6d --last 1": "b b b c - d d d",
    "--kind rejected --kind confirmed": "a c d",
    "--kind *d": "a a b c - d d",
    "--since 2h": "",
  };
  const optionLines = Object.keys(idsByOptions);
  const results = await cli.each(optionLines.map((line) => `--json audit show${line && ` ${line}`}`));
  const ids = results.map(({ stdout }) => (JSON.parse(stdout) as AuditRecord[]).map((each) => each.commandId));
  expect(Object.fromEntries(ids.map((each, n) => [optionLines[n], each.join(" ")]))).toEqual(idsByOptions);
  const [people, machines, nothing] = await cli.each([
    "audit show --last 1",
    "--utc audit show --last 1",
    "audit show --since 2h",
  ]);
  expect(people?.stdout).toMatch(
    /^11 {2}\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d\d:\d\d \(\d+ h ago\) {2}confirmed {2}d {2}\{/,
  );
  expect(machines?.stdout).toMatch(/^11 {2}\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z {2}confirmed {2}d/);
  expect(nothing).toEqual({ code: 0, stdout: "", stderr: "No record matches.\n" });
});
