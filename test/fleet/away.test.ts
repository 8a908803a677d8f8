import { describe, expect, test } from "vitest";
import { createFleet } from "#src/scale/fleet/fleet.ts";
import { countingLog } from "../broken-parts.ts";
import { describeService } from "../suites/service-suite.ts";
import { createVirtualClock } from "../virtual-clock.ts";
import { createMemoryTables, type MemoryLink } from "./memory-tables.ts";

function memberOf(connection: MemoryLink) {
  const clock = createVirtualClock(Date.UTC(2026, 5, 1), { turns: 3 });
  const { log, lines } = countingLog(100);
  const fleet = createFleet({
    database: connection.database,
    name: "a",
    sources: ["building"],
    digest: "0123456789abcdef",
    page: () => "",
    hold: () => Promise.reject(new Error("never asked for")),
    clock,
    log,
  });
  return { clock, fleet, lines };
}

describeService("a fleet whose database is unavailable", async () => {
  const connection = createMemoryTables().connect();
  connection.state = "fails";
  const { clock, fleet } = memberOf(connection);
  return {
    service: fleet,
    async quiet() {
      await clock.advance(60_000);
      expect(clock.sleepers()).toBe(0);
    },
  };
});

describe("a member whose database is unavailable for an hour", () => {
  test.each(["fails", "stalls"] as const)(
    "retries with waits, and reports the cause when the database %s",
    async (state) => {
      const connection = createMemoryTables().connect();
      connection.state = state;
      const { clock, fleet, lines } = memberOf(connection);
      const started = fleet.start(new AbortController().signal);
      await clock.advance(3_600_000);
      await started;
      // Once in a second at the most, and every four when it waits for answers.
      expect(connection.asked).toBeGreaterThan(800);
      expect(connection.asked).toBeLessThan(7_200);
      expect(lines()).toBe(1);
      const why = state === "fails" ? "The database is away." : "The database has not answered within 3 s.";
      expect(fleet.notices()).toEqual([
        `The fleet's database in memory cannot be asked: ${why} Nothing is polled here, because nothing could be committed; it goes on by itself.`,
      ]);
      const status = fleet.status();
      await clock.advance(2_000);
      expect(await status).toMatchObject({ self: "a", members: [], database: null });
      const stopped = fleet.stop(1_000);
      await clock.advance(10_000);
      await stopped;
      expect(clock.sleepers()).toBe(0);
    },
  );
});
