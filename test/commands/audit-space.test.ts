import { closeSync, openSync, rmSync, writeSync } from "node:fs";
import { join } from "node:path";
import { pino } from "pino";
import { describe, expect, test } from "vitest";
import { createMetrics } from "#src/core/runtime/metrics.ts";
import { AUDIT_LOG, AUDIT_START_HASH, hashEntry } from "#src/engine/commands/audit/audit-log.ts";
import { createAuditLogSpace } from "#src/engine/commands/audit/audit-log-space.ts";
import { smallDisk } from "../small-disk.ts";
import { createHarness, type Harness } from "./command-harness.ts";
import { openHarness, TAG as tag } from "./test-harness.ts";

const MEBIBYTE = 1024 ** 2;

function spaceOf(bytes: () => number, free: number | null, maxBytes = 100 * MEBIBYTE) {
  const lines: string[] = [];
  const metrics = createMetrics();
  const log = pino({ level: "warn" }, { write: (line: string) => void lines.push(line) });
  const size = { bytes, recordCount: () => 0, add: () => undefined, storeSize: () => Promise.resolve() };
  return { ...createAuditLogSpace({ size, maxBytes, freeDiskBytes: () => free, metrics, log }), lines, metrics };
}

describe("the space limit of the audit log", () => {
  test("causes a warning from 80 % on, and blocks writing at 100 %", () => {
    let bytes = 80 * MEBIBYTE - 1;
    const space = spaceOf(() => bytes, null);
    expect([space.notice(), space.findFullRefusal()]).toEqual([null, null]);
    bytes += 1;
    expect(space.notice()).toBe(
      "The audit log of commands has 80.0 of the 100 MiB that are there for it (80 %). When it is full nothing is written to the building: raise commands.audit_max_bytes.",
    );
    expect(space.findFullRefusal()).toBeNull();
    bytes = 100 * MEBIBYTE;
    expect(space.notice()).toContain("nothing is written to the building any more");
    expect(space.findFullRefusal()).toMatchObject({ reason: "audit-full" });
  });

  test("includes only the free disk space when that is less than the configured limit", () => {
    expect(spaceOf(() => 8 * MEBIBYTE, 3 * MEBIBYTE).notice()).toBeNull();
    expect(spaceOf(() => 8 * MEBIBYTE, 2 * MEBIBYTE).notice()).toContain("free some space on its disk");
  });

  test("causes one warning each time the log exceeds 80 % of the limit, and is exported as a metric", async () => {
    let bytes = 90 * MEBIBYTE;
    const space = spaceOf(() => bytes, null);
    for (let n = 0; n < 3; n += 1) space.updateMetrics();
    expect(space.lines).toHaveLength(1);
    bytes = MEBIBYTE;
    space.updateMetrics();
    bytes = 90 * MEBIBYTE;
    space.updateMetrics();
    expect(space.lines).toHaveLength(2);
    const shown = await space.metrics.registry.metrics();
    expect(shown).toContain(`plenum_audit_log_bytes ${bytes}`);
    expect(shown).toContain(`plenum_audit_log_limit_bytes ${100 * MEBIBYTE}`);
  });
});

async function fill(harness: Harness, bytes: number): Promise<void> {
  let previous = AUDIT_START_HASH;
  let left = bytes;
  const records = [];
  while (left > 1_000) {
    const text = "x".repeat(Math.min(50_000, left - 500));
    const body = hashEntry(previous, { at: "2026-11-20T11:00:00.000Z", commandId: "-", step: "old", detail: { text } });
    left -= JSON.stringify(body).length;
    previous = body.hash;
    records.push({ log: AUDIT_LOG, body });
  }
  await harness.store.commit({ records });
}

test("the size of the audit log includes records of earlier versions and records from before a restart", async () => {
  const harness = await openHarness();
  await fill(harness, MEBIBYTE - 5_000);
  const attempt = (id: string) => harness.outcomeOf({ id, tag, value: 22 });
  await harness.restart({ audit_max_bytes: MEBIBYTE });
  for (let n = 0; n < 30; n += 1) await harness.send({ id: `${n}`, tag, value: 99 });
  const reasons = new Set((await harness.results()).map(({ reason }) => reason));
  expect([...reasons]).toEqual(["out-of-range", "audit-full"]);
  expect(await attempt("late")).toBe("rejected audit-full");
  await harness.clock.advance(3_600_000);
  await harness.restart({ audit_max_bytes: MEBIBYTE });
  expect(await attempt("later")).toBe("rejected audit-full");
  expect(harness.commands.notices()).toHaveLength(1);
  expect(harness.posts).toEqual([]);
  await harness.restart({ audit_max_bytes: 2 * MEBIBYTE });
  expect(await attempt("raised")).toBe("confirmed");
});

test("the worker writes no value to the building while the disk is full", async (context) => {
  const place = smallDisk(8);
  if (place === null) return context.skip();
  const harness = await createHarness({ place });
  const ballast = openSync(join(place, "ballast"), "w");
  try {
    for (;;) writeSync(ballast, Buffer.alloc(4_096));
  } catch (error) {
    expect(error).toMatchObject({ code: "ENOSPC" });
  }
  closeSync(ballast);
  let refused = 0;
  for (let n = 0; n < 50; n += 1)
    await harness.send({ id: `${n}`, tag: "?".repeat(100), value: 22 }).catch(() => (refused += 1));
  expect(refused).toBeGreaterThan(0);
  await expect(harness.send({ id: "full", tag, value: 22 })).rejects.toThrow(/disk|space/);
  await harness.clock.advance(60_000);
  expect(harness.posts).toEqual([]);
  expect(harness.commands.notices().join()).toContain("free some space on its disk");
  rmSync(join(place, "ballast"));
  expect(await harness.outcomeOf({ id: "space", tag, value: 22 })).toBe("confirmed");
  expect(harness.posts).toHaveLength(1);
  await harness.close();
});
