import { afterEach, describe, expect, test } from "vitest";
import { systemClock } from "#src/core/runtime/clock.ts";
import { askAt } from "../ask-postgres.ts";
import { absent } from "../real-servers.ts";
import { type Stage, setStage } from "./stage.ts";

let stage: Stage;

afterEach(() => stage.close());

const WRONG_MS = 300_000;
/** Members estimate the clock of the database from the way of a question and its answer: a hundredth of the wrong clocks. */
const VAGUE_MS = WRONG_MS / 100;

describe.skipIf(absent("postgres") || absent("mosquitto"))("members whose own clocks are wrong", () => {
  test("commit, store and show times of the database's clock, also after a takeover", async () => {
    stage = await setStage({ sources: ["north"] });
    const clockWrongBy = (ms: number) => ({ ...systemClock, now: () => systemClock.now() + ms });
    const committed = async () => {
      const rows = await askAt(
        stage.database,
        "plenum",
        "select position::int, committed_ms::double precision from plenum_state.event order by position",
      );
      return rows.map((row) => Number(row[1]));
    };
    for (const [name, wrongByMs] of [
      ["ahead", WRONG_MS],
      ["right", 0],
      ["behind", -WRONG_MS],
    ] as const) {
      const member = await stage.member(name, undefined, clockWrongBy(wrongByMs));
      const before = (await committed()).length;
      const startedMs = Date.now();
      await member.start();
      stage.services.get("north")?.simulator.control.raiseAlarm({ siteId: 12 });
      await expect
        .poll(async () => (await committed()).length, { timeout: 60_000, interval: 100 })
        .toBeGreaterThan(before);
      const times = await committed();
      // The database runs on this machine, so its stamps are between two readings of the true clock.
      expect(Math.min(...times.slice(before))).toBeGreaterThanOrEqual(startedMs - VAGUE_MS);
      expect(Math.max(...times.slice(before))).toBeLessThanOrEqual(Date.now() + VAGUE_MS);
      expect(times).toEqual(times.toSorted((a, b) => a - b));
      const answer = await fetch(`${member.statusUrl()}/api/status`);
      const report = (await answer.json()) as { readonly now: string; readonly notices: readonly string[] };
      expect(Date.parse(report.now)).toBeGreaterThanOrEqual(startedMs - VAGUE_MS);
      expect(Date.parse(report.now)).toBeLessThanOrEqual(Date.now() + VAGUE_MS);
      expect(report.notices.some((notice) => notice.startsWith("The clock of this machine is "))).toBe(wrongByMs !== 0);
      await member.stop(5_000);
    }
  }, 180_000);
});
