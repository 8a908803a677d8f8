import { expect, test } from "vitest";
import { SITE } from "./command-harness.ts";
import { openHarness, TAGS } from "./test-harness.ts";

const RESTARTS = 1_000;
const EVERY = 50;

test(`${RESTARTS} stops and kills with pending commands cause no write request without a new command`, async () => {
  const harness = await openHarness();
  const [waits = "", sent = "", timed = "", stored = ""] = TAGS;
  const entry = { site_id: SITE, type: "number" as const, min: 15, max: 25, min_interval: "1s" };
  const config = {
    group_window: "400ms",
    max_per_hour: 10_000,
    allow: [
      { ...entry, tag_id: waits, max_per_day: 1_000 },
      { ...entry, tag_id: sent, max_per_day: 1_000 },
      { ...entry, tag_id: timed, restore: true, max_per_day: 1_000 },
      { ...entry, tag_id: stored, second_person: true, max_per_day: 1_000 },
    ],
  };
  await harness.restart(config);
  const asked: string[] = [];
  for (let n = 0; n < RESTARTS; n += 1) {
    const value = 16 + ((n / EVERY) % 8);
    if (n % EVERY === 0) {
      await harness.send({ id: `sent-${n}`, tag: sent, value });
      await harness.send({ id: `timed-${n}`, tag: timed, value, for_s: 86_000 });
      await harness.clock.advance(450);
      asked.push(`${sent}=${value}`, `${timed}=${value}`);
      await harness.send({ id: `waits-${n}`, tag: waits, value });
      await harness.send({ id: `held-${n}`, tag: stored, value, ttl_s: 300 });
    }
    if (n % 3 === 1) {
      harness.breakStore(n % 2 === 0);
      const stopped = harness.commands.stop(500);
      await harness.clock.advance(500);
      await stopped;
      harness.breakStore(false);
    }
    await harness.restart(config);
    await harness.clock.advance(n % EVERY === EVERY - 1 ? 61_000 : 100 + (n % 7) * 300);
  }
  await harness.clock.advance(120_000);
  const written = harness.posts.flat().map(({ tag_id, value }) => `${tag_id}=${value}`);
  for (const each of written) expect(asked).toContain(each);
  expect(written.length).toBeLessThanOrEqual(asked.length);
  expect(written.length).toBeGreaterThan(asked.length / 2);
  const results = await harness.results();
  for (const name of ["waits", "held"]) {
    const ends = results.filter(({ commandId }) => commandId.startsWith(`${name}-`));
    expect(ends).toHaveLength(RESTARTS / EVERY);
    for (const { outcome } of ends) expect(outcome).toBe("expired");
  }
  const ids = results.map(({ commandId }) => commandId);
  expect(new Set(ids).size).toBe(ids.length);
});
