import { afterEach, expect, test } from "vitest";
import { createRig, type Rig, SITE, tagsOf } from "./rig.ts";

/** Starts, stops, kills and errors write nothing of their own: what is written was asked for in the same life. */
let rig: Rig | undefined;
afterEach(async () => {
  await rig?.close();
});

const RESTARTS = 1_000;
/** Commands in every state that a life can leave behind, each after so many restarts. */
const EVERY = 50;

test(`${RESTARTS} stops and kills, with commands in every state: no POST that nobody asked for`, async () => {
  const made = await createRig();
  rig = made;
  const [waits = "", sent = "", timed = "", held = ""] = tagsOf(made.simulator, 4);
  const entry = { site_id: SITE, type: "number" as const, min: 15, max: 25, min_interval: "1s" };
  const config = {
    group_window: "400ms",
    max_per_hour: 10_000,
    allow: [
      { ...entry, tag_id: waits, max_per_day: 1_000 },
      { ...entry, tag_id: sent, max_per_day: 1_000 },
      { ...entry, tag_id: timed, restore: true, max_per_day: 1_000 },
      { ...entry, tag_id: held, second_person: true, max_per_day: 1_000 },
    ],
  };
  await made.restart(config);
  const asked: string[] = [];
  for (let n = 0; n < RESTARTS; n += 1) {
    const value = 16 + ((n / EVERY) % 8);
    if (n % EVERY === 0) {
      await made.send({ id: `sent-${n}`, tag: sent, value });
      await made.send({ id: `timed-${n}`, tag: timed, value, for_s: 86_000 });
      await made.clock.advance(450);
      asked.push(`${sent}=${value}`, `${timed}=${value}`);
      await made.send({ id: `waits-${n}`, tag: waits, value });
      await made.send({ id: `held-${n}`, tag: held, value, ttl_s: 300 });
    }
    if (n % 3 === 1) {
      made.breakStore(n % 2 === 0);
      const stopped = made.commands.stop(500);
      await made.clock.advance(500);
      await stopped;
      made.breakStore(false);
    }
    await made.restart(config);
    await made.clock.advance(n % EVERY === EVERY - 1 ? 61_000 : 100 + (n % 7) * 300);
  }
  await made.clock.advance(120_000);
  const written = made.posts.flat().map(({ tag_id, value }) => `${tag_id}=${value}`);
  for (const each of written) expect(asked).toContain(each);
  expect(written.length).toBeLessThanOrEqual(asked.length);
  expect(written.length).toBeGreaterThan(asked.length / 2);
  const results = await made.results();
  for (const name of ["waits", "held"]) {
    const ends = results.filter(({ commandId }) => commandId.startsWith(`${name}-`));
    expect(ends).toHaveLength(RESTARTS / EVERY);
    for (const { outcome } of ends) expect(outcome).toBe("expired");
  }
  const ids = results.map(({ commandId }) => commandId);
  expect(new Set(ids).size).toBe(ids.length);
}, 120_000);
