import { describe, expect, test } from "vitest";
import { Rejected, Retryable, Throttled } from "#src/core/errors/errors.ts";
import { createDeliveryFailurePolicy } from "#src/engine/delivery/failure-policy.ts";

const RETRY = { first: 1_000, max: 60_000 };
const SCHEDULE = [5_000, 30_000];
const away = new Retryable("It is away.");
const refused = new Rejected("It says no.");

/** Random is 1: each wait has its full length. */
const failurePolicy = (schedule?: readonly number[]) =>
  createDeliveryFailurePolicy({ retry: RETRY, schedule: schedule as number[] | undefined }, () => 1);

const waitMs = (consequence: ReturnType<ReturnType<typeof failurePolicy>["decide"]>) =>
  consequence.action === "wait" ? consequence.waitMs : consequence.action;

describe("the failure policy of a sink", () => {
  test("doubles the wait with each failure up to the configured maximum", () => {
    const { decide } = failurePolicy();
    const waits = Array.from({ length: 12 }, () => waitMs(decide(away, "1", true)));
    expect(waits.slice(0, 4)).toEqual([1_000, 2_000, 4_000, 8_000]);
    expect(waits.at(-1)).toBe(60_000);
  });

  test("doubles the wait although another event fails, counts attempts per event, and resets after an accepted event", () => {
    const { decide, attempts, reset } = failurePolicy();
    decide(away, "1", true);
    expect(attempts()).toBe(1);
    decide(away, "1", true);
    expect(attempts()).toBe(2);
    expect(waitMs(decide(away, "2", true))).toBe(4_000);
    expect(attempts()).toBe(1);
    reset();
    expect(attempts()).toBe(0);
    expect(waitMs(decide(away, "1", true))).toBe(1_000);
  });

  test("does not count outages and failures to open as attempts of the retry schedule", () => {
    const { decide } = failurePolicy(SCHEDULE);
    for (let n = 0; n < 20; n++) expect(decide(away, "1", true).action).toBe("wait");
    for (let n = 0; n < 20; n++) expect(decide(refused, "open", false).action).toBe("wait");
    expect(waitMs(decide(refused, "1", true))).toBe(5_000);
  });

  test("doubles the wait when the server throttles without a stated time, and resets the wait after an accepted event", () => {
    const { decide, reset } = failurePolicy();
    const hold = () => waitMs(decide(new Throttled("Slower.", null), "1", true));
    expect([hold(), hold(), hold()]).toEqual([1_000, 2_000, 4_000]);
    reset();
    expect(hold()).toBe(1_000);
  });

  test("waits as long as the server demands, up to a day, without reopening the sink", () => {
    const { decide } = failurePolicy();
    expect(decide(new Throttled("Slower.", 7_000), "1", true)).toMatchObject({
      ...{ action: "wait", sinkState: "throttled", waitMs: 7_000, reopen: false },
    });
    expect(waitMs(decide(new Throttled("Slower.", 1e12), "1", true))).toBe(24 * 60 * 60_000);
    expect(waitMs(decide(new Throttled("Slower.", null), "1", true))).toBe(4_000);
  });
});
