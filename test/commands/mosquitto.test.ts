import { describe, expect, test } from "vitest";
import { absent } from "../real-servers.ts";
import { replay, seed } from "../seed.ts";
import { sized } from "../sizes.ts";
import { runBrokerCampaign } from "./broker/campaign.ts";

const MESSAGES = sized(10_000, 3_500);

describe.skipIf(absent("mosquitto"))("commands over a real Mosquitto", () => {
  test(`${MESSAGES} messages, 3 in 10 of them repeated, while broker and worker are killed, cause only allowed writes, at most one write for each id, and exactly one result each`, async () => {
    process.stderr.write(`${replay}\n`);
    const report = await runBrokerCampaign({ seed, messages: MESSAGES });
    expect(report.violations.slice(0, 20), replay).toEqual([]);
    expect(report.duplicates / report.messages, replay).toBeGreaterThan(0.3);
    expect(report.writes, replay).toBeGreaterThan(MESSAGES / 66);
    expect(report.restores, replay).toBeGreaterThan(0);
    expect(Object.keys(report.kills).toSorted(), replay).toEqual([
      "acknowledgement",
      "delivery",
      "now",
      "read",
      "write",
    ]);
    const ends = ["confirmed", "duplicate", "invalid", "retained", "stopped", "superseded", "too-soon"];
    expect(Object.keys(report.reasons), replay).toEqual(expect.arrayContaining(ends));
  });
});
