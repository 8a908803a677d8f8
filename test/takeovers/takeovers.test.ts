import { describe, expect, test } from "vitest";
import { absent } from "../real-servers.ts";
import { runTakeovers } from "./campaign.ts";
import type { Fault, FaultKind } from "./faults.ts";

const SEED = Number(process.env.PLENUM_SEED ?? 1);
const needs = [absent("postgres"), absent("mosquitto"), absent("faketime")];

const fault = (kind: FaultKind, member: string | null, seconds: number): Fault => ({
  ...{ kind, member, lastsMs: seconds * 1_000, tornAt: 0.5 },
  clock: kind === "freeze" ? { member: "c", aheadS: -300 } : null,
});

describe.skipIf(needs.includes(true))("a fleet of three members", () => {
  test("a fleet of three members passes all checks of delivery and takeover while members and the database fail and recover", async () => {
    const report = await runTakeovers({
      seed: SEED,
      sources: 6,
      plan: [
        [fault("kill", "a", 0), fault("freeze", "b", 11)],
        [fault("database-kill", null, 0)],
        [fault("stall-in-commit", "c", 11), fault("cut-in-commit", "a", 1)],
        [fault("stop", "b", 0)],
      ],
      graceMs: 30_000,
      commandEveryMs: 2_000,
      commandTtlS: 5,
      sweep: "*/5 * * * * *",
      pauseMs: 10_000,
    });
    const output = [...report.output].map(([name, text]) => `--- ${name}\n${text.slice(-3_000)}`);
    expect(report.problems, `Replay with PLENUM_SEED=${SEED}\n${[...report.story, ...output].join("\n")}`).toEqual([]);
    expect(report.takeovers).toBeGreaterThan(5);
  });
});
