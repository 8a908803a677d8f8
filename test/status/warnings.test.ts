import { expect, test } from "vitest";
import { createLog } from "#src/core/runtime/log.ts";
import { createMetrics } from "#src/core/runtime/metrics.ts";
import { createLogSpaceMonitor } from "#src/engine/delivery/back-pressure.ts";
import type { KnownStateCopy, SinkLag } from "#src/engine/store/store.ts";
import { refreshMetricGauges } from "#src/ui/status/health.ts";
import { statusWarnings } from "#src/ui/status/page-warnings.ts";
import { isDiskAlmostFull } from "#src/ui/status/state-disk-space.ts";
import { statusBuilding } from "./status-building.ts";

const GIBIBYTE = 1024 ** 3;
const MEBIBYTE = 1024 ** 2;

test.each([
  ["half of a large disk", 500, 1_000, false],
  ["a hundredth of a large disk", 9, 1_000, true],
  ["a twentieth of a large disk", 50, 1_000, false],
  ["a tenth of a small disk", 1.5, 16, true],
  ["an eighth of a small disk", 2, 16, false],
  ["half of a memory card", 0.9, 2, true],
])("a disk with %s free, that is %s of %s GiB, counts as almost full: %s", (_, free, size, expected) => {
  expect(isDiskAlmostFull(free * GIBIBYTE, size * GIBIBYTE)).toBe(expected);
});

function warningsFor(disk: { readonly free: number | null; readonly copy?: KnownStateCopy }, nowMs = 0) {
  const store = { file: "/s/plenum.db", diskBytes: 16 * GIBIBYTE, damaged: [], copy: null, ...disk };
  return statusWarnings({ sources: [], sinks: [], commands: null, store }, nowMs);
}

test("the report warns about an almost full disk, with another text for a full disk", () => {
  expect(warningsFor({ free: 8 * GIBIBYTE })).toEqual([]);
  expect(warningsFor({ free: null })).toEqual([]);
  expect(warningsFor({ free: 1.2 * GIBIBYTE })).toEqual([
    "The disk that holds /s/plenum.db has 1.2 GiB left, 7 % of it. Free some space before the disk is full.",
  ]);
  expect(warningsFor({ free: 10 * MEBIBYTE })).toEqual([
    expect.stringContaining("has only 10 MiB left. When the disk"),
  ]);
});

test("the report warns about a copied state while its original exists, or for a week if it came from another machine", () => {
  const from = { folder: "/var/lib/plenum", host: "old" };
  const copy = { identity: "0a1b2c3d", at: "2026-06-01T00:00:00.000Z", from, isHere: true, isOriginalThere: true };
  const at = Date.parse(copy.at);
  const free = 8 * GIBIBYTE;
  expect(warningsFor({ free, copy }, at)).toEqual([
    expect.stringContaining("from /var/lib/plenum, which still exists"),
  ]);
  expect(warningsFor({ free, copy: { ...copy, isOriginalThere: false } }, at)).toEqual([]);
  const copyElsewhere = { ...copy, isHere: false, isOriginalThere: false };
  expect(warningsFor({ free, copy: copyElsewhere }, at)).toEqual([expect.stringContaining("/var/lib/plenum on old (")]);
  expect(warningsFor({ free, copy: copyElsewhere }, at + 8 * 86_400_000)).toEqual([]);
});

test("the disk gauges are set, and a gauge with an unknown value is removed", async () => {
  const { status } = await statusBuilding();
  const metrics = createMetrics();
  const scrape = async (disk: { readonly free: number | null; readonly diskBytes: number | null }) => {
    const health = async () => ({ ...(await status.health()), disk });
    await refreshMetricGauges({ status: { ...status, health }, metrics, log: createLog({ level: "silent" }) });
    return (await metrics.registry.metrics()).match(/^plenum_disk.*$/gm);
  };
  expect(await scrape({ free: 5, diskBytes: 10 })).toEqual(["plenum_disk_free_bytes 5", "plenum_disk_bytes 10"]);
  expect(await scrape({ free: null, diskBytes: null })).toBeNull();
});

test("the report warns while undelivered events fill 80 % of the event log, and the worker logs one line", async () => {
  const metrics = createMetrics();
  const lines: string[] = [];
  let pendingBytes = 79 * MEBIBYTE;
  const lag = (sink: string, position: number, ended: string | null) => ({ sink, position, ended }) as SinkLag;
  const space = createLogSpaceMonitor({
    outbox: {
      pressure: async () => ({ bytes: 90 * MEBIBYTE, pendingBytes, oldestTelemetry: null }),
      lag: async () => [lag("lake", 7, null), lag("scada", 900, null), lag("gone", 1, "410")],
    },
    metrics,
    log: createLog({ level: "warn", destination: { write: (line) => void lines.push(line) } }),
  });
  await space.check(100 * MEBIBYTE);
  expect([space.notices(), lines]).toEqual([[], []]);
  pendingBytes = 81 * MEBIBYTE;
  await space.check(100 * MEBIBYTE);
  await space.check(100 * MEBIBYTE);
  expect(space.notices()).toEqual([
    expect.stringMatching(/^The log of events is 81 % full of what lake has not taken \(81 of 100 MiB\)/),
  ]);
  expect(lines).toHaveLength(1);
  expect(await metrics.registry.metrics()).toMatch(/^plenum_outbox_pending_bytes 84934656$/m);
  await space.check(200 * MEBIBYTE);
  expect(space.notices()).toEqual([]);
});
