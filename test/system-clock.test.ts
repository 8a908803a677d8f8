import { readFileSync } from "node:fs";
import { uptime } from "node:os";
import { describe, expect, test } from "vitest";
import { systemClock } from "#src/core/runtime/clock.ts";

describe.runIf(process.platform === "linux")("systemClock.sinceBoot", () => {
  test("returns the boot id of the machine and the uptime", () => {
    const uptimeBefore = uptime() * 1_000;
    const sinceBoot = systemClock.sinceBoot?.() ?? null;
    expect(sinceBoot?.bootId).toBe(readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim());
    expect(sinceBoot?.ms).toBeGreaterThanOrEqual(uptimeBefore);
    expect(sinceBoot?.ms).toBeLessThanOrEqual(uptime() * 1_000);
  });
});
