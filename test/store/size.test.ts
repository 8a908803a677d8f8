import { expect, test } from "vitest";
import { systemClock } from "#src/core/runtime/clock.ts";
import { openStore } from "#src/engine/store/open.ts";
import { valueEvent } from "../sample-events.ts";
import { closeAfterTest, testFolder } from "../test-resources.ts";

test("the state file stays below twice the configured size limit while a sink accepts no event", async () => {
  const folder = testFolder();
  const store = await openStore({ folder, clock: systemClock });
  await store.outbox.register("dead", "beginning");
  const bounds = { ranMs: 0, maxBytes: 2 * 1024 ** 2, maxAgeMs: 1e12, replayMs: 1e12 };
  const sizes: number[] = [];
  for (let round = 0; round < 12; round += 1) {
    const events = Array.from({ length: 2_000 }, (_, n) => valueEvent(round * 2_000 + n));
    await store.commit({ events });
    await store.outbox.prune(bounds);
    sizes.push((await store.describe()).bytes);
  }
  await store.close();
  const reopened = closeAfterTest(await openStore({ folder, clock: systemClock }));
  // The bound, one more commit, and half-full pages.
  expect((await reopened.describe()).bytes).toBeLessThan(2 * bounds.maxBytes);
  expect((await reopened.outbox.lag())[0]).toMatchObject({ dropped: expect.any(Number) });
  expect(Math.max(...sizes.slice(6))).toBeLessThanOrEqual(Math.max(...sizes.slice(0, 6)) * 1.1);
});
