import { expect, test } from "vitest";
import { seededRandom } from "../commands/seeded-random.ts";
import { replay, seed } from "../seed.ts";
import { complaintsAbout, playCampaign } from "./campaign.ts";
import { RECEIVERS } from "./receivers.ts";

/** `npm run receivers:long` plays 400 alarms, and lets up to 40 % of the requests fail. */
const ALARMS = 60;
const FAILING_SHARES = [0.02, 0.1, 0.2];
/** A mail takes 100 ms of real time. */
const MAIL_FAILING_SHARES = [0.02, 0.1];

test.each(RECEIVERS.map((row) => [row.name, row] as const))(
  "%s gets each alarm of a storm once, urgent alarms first and at its own rate, despite failing requests",
  { timeout: 60_000 },
  async (name, row) => {
    const wrong = seededRandom(seed).pick(name === "email" ? MAIL_FAILING_SHARES : FAILING_SHARES);
    const result = await playCampaign(row, { seed, alarms: ALARMS, wrong });
    expect(complaintsAbout(result, row), `${replay}: ${wrong} wrong, ${JSON.stringify(result)}`).toEqual([]);
  },
);

test("playCampaign gives the same result twice with the same seed", async () => {
  const [slack] = RECEIVERS;
  if (slack === undefined) throw new Error("Nobody takes part.");
  const play = () => playCampaign(slack, { seed, alarms: 20, wrong: 0.2 });
  expect(await play(), replay).toEqual(await play());
});
