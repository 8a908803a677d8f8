import { expect, test } from "vitest";
import { seededRandom } from "../commands/seeded-random.ts";
import { replay, seed } from "../seed.ts";
import { complaintsAbout, playCampaign } from "./campaign.ts";
import { RECEIVERS } from "./receivers.ts";

/** A short version of what `npm run receivers:long` does with 400 alarms, and with two requests in five that go wrong. A mail takes 100 ms of real time. */
const SHORT = { alarms: 60, wrong: [0.02, 0.1, 0.2] };
const SHORTEST = { alarms: 16, wrong: [0.02, 0.1] };

test.each(RECEIVERS.map((row) => [row.name, row] as const))(
  "%s gets each alarm of a storm once, urgent alarms first and at its own rate, despite failing requests",
  { timeout: 60_000 },
  async (name, row) => {
    const { alarms, wrong } = name === "email" ? SHORTEST : SHORT;
    const share = seededRandom(seed).pick(wrong);
    const result = await playCampaign(row, { seed, alarms, wrong: share });
    expect(complaintsAbout(result, row), `${replay}: ${share} wrong, ${JSON.stringify(result)}`).toEqual([]);
  },
);

test("playCampaign gives the same result twice with the same seed", async () => {
  const [slack] = RECEIVERS;
  if (slack === undefined) throw new Error("Nobody takes part.");
  const play = () => playCampaign(slack, { seed, alarms: 20, wrong: 0.2 });
  expect(await play(), replay).toEqual(await play());
});
