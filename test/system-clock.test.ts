import { readFileSync } from "node:fs";
import { uptime } from "node:os";
import { describe, expect, test } from "vitest";
import { systemClock } from "#src/core/runtime/clock.ts";

describe.runIf(process.platform === "linux")("systemClock.sinceBoot", () => {
  test("returns the boot id of the machine and the uptime", () => {
    const before = uptime() * 1_000;
    const since = systemClock.sinceBoot?.() ?? null;
    expect(since?.boot).toBe(readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim());
    expect(since?.ms).toBeGreaterThanOrEqual(before);
    expect(since?.ms).toBeLessThanOrEqual(uptime() * 1_000);
  });
});
