import { expect, test } from "vitest";
import { createFailedStarts } from "#src/scale/fleet/holdings.ts";
import { createVirtualClock } from "../virtual-clock.ts";

test("a source that fails to start is left to other members for growing times until a start succeeds", async () => {
  const clock = createVirtualClock(0);
  const unable = createFailedStarts(clock, () => 1);
  expect([unable.sources(), unable.nextMs()]).toEqual([[], Number.POSITIVE_INFINITY]);
  for (const waitMs of [10_000, 20_000, 40_000, 80_000, 160_000, 300_000, 300_000]) {
    unable.failed("b", new Error("no way to it"));
    expect([unable.sources(), unable.nextMs()]).toEqual([["b"], waitMs]);
    await clock.advance(waitMs);
    expect(unable.sources()).toEqual([]);
  }
  unable.worked("b");
  unable.failed("b", new Error("no way to it"));
  unable.failed("a", new Error("no way to it"));
  expect([unable.sources(), unable.nextMs()]).toEqual([["a", "b"], 10_000]);
  expect(unable.notices()).toContain(
    "The source a could not be started here, and is left to other members: no way to it",
  );
});
