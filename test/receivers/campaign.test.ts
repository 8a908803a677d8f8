import { expect, test } from "vitest";
import { seededRandom } from "../commands/seeded-random.ts";
import { replay, seed } from "../seed.ts";
import { findProblems, playStorm } from "./campaign.ts";
import { RECEIVERS } from "./receivers.ts";

/** `npm run receivers:long` plays 400 alarms, and lets up to 40 % of the requests fail. */
const ALARMS = 60;
const FAILING_SHARES = [0.02, 0.1, 0.2];
/** A mail takes 100 ms of real time. */
const MAIL_FAILING_SHARES = [0.02, 0.1];

test.each(RECEIVERS.map((receiver) => [receiver.name, receiver] as const))(
  "%s gets each alarm of a storm once, urgent alarms first and at its own rate, despite failing requests",
  async (name, receiver) => {
    const wrong = seededRandom(seed).pick(name === "email" ? MAIL_FAILING_SHARES : FAILING_SHARES);
    const result = await playStorm(receiver, { seed, alarms: ALARMS, wrong });
    expect(findProblems(result, receiver), `${replay}: ${wrong} wrong, ${JSON.stringify(result)}`).toEqual([]);
  },
);

test("playStorm gives the same result twice with the same seed", async () => {
  const [slack] = RECEIVERS;
  if (slack === undefined) throw new Error("There is no receiver.");
  const play = () => playStorm(slack, { seed, alarms: 20, wrong: 0.2 });
  expect(await play(), replay).toEqual(await play());
});
