import { expect, test } from "vitest";
import { systemClock } from "#src/core/runtime/clock.ts";
import { createFleet, describeWithServers } from "./fleet-harness.ts";

const WRONG_MS = 300_000;
/** Members estimate the database's clock from the duration of a query. */
const TOLERANCE_MS = WRONG_MS / 100;

describeWithServers("members whose own clocks are wrong", () => {
  test("members with wrong clocks commit, store and show times of the database's clock, also after a takeover", async () => {
    const harness = await createFleet({ sources: ["north"] });
    const committed = async () => {
      const rows = await harness.query("select committed_ms::double precision from event order by position");
      return rows.map(([ms]) => Number(ms));
    };
    for (const [name, wrongByMs] of [
      ["ahead", WRONG_MS],
      ["right", 0],
      ["behind", -WRONG_MS],
    ] as const) {
      const clock = { ...systemClock, now: () => systemClock.now() + wrongByMs };
      const member = await harness.member(name, undefined, clock);
      const before = (await committed()).length;
      const startedMs = Date.now();
      const expectNow = (ms: number) => {
        expect(ms).toBeGreaterThanOrEqual(startedMs - TOLERANCE_MS);
        expect(ms).toBeLessThanOrEqual(Date.now() + TOLERANCE_MS);
      };
      await member.start();
      harness.service("north").simulator.control.raiseAlarm({ siteId: 12 });
      await expect.poll(async () => (await committed()).length).toBeGreaterThan(before);
      const times = await committed();
      for (const ms of times.slice(before)) expectNow(ms);
      expect(times).toEqual(times.toSorted((a, b) => a - b));
      const response = await fetch(`${member.statusUrl()}/api/status`);
      const report = (await response.json()) as { readonly now: string; readonly notices: readonly string[] };
      expectNow(Date.parse(report.now));
      expect(report.notices.some((notice) => notice.startsWith("The clock of this machine is "))).toBe(wrongByMs !== 0);
      await member.stop(5_000);
    }
  });
});
