import { describe, expect, test } from "vitest";
import { allowed, openHarness, TAGS } from "./test-harness.ts";

const LAST = TAGS[24] ?? "";
const scene = (id: string, last: object = {}, more: object = {}) => ({
  id,
  writes: TAGS.map((tag) => ({ tag, value: 22, ...(tag === LAST ? last : {}) })),
  ...more,
});

function multiTagHarness(lastEntry: object = {}, config: object = {}) {
  return openHarness({ config: { allow: TAGS.map((tag) => allowed(tag, tag === LAST ? lastEntry : {})), ...config } });
}

describe("a message with more than 20 writes", () => {
  test("is accepted completely, with the number of requests and seconds needed, and has a result per tag", async () => {
    const harness = await multiTagHarness();
    await harness.execute(scene("s"), {}, 10_000);
    expect((await harness.outcomes()).toSorted()).toEqual(TAGS.map((tag) => `s/${tag} confirmed`));
    expect(harness.posts.map((writes) => writes.length)).toEqual([20, 5]);
    const accepted = await harness.store.outbox.latest(100, ["command-accepted"]);
    expect(accepted).toHaveLength(25);
    for (const { event } of accepted) expect(event.data).toMatchObject({ messageRequests: 4, messageSeconds: 3 });
  });

  test.each([
    ["out-of-range", scene("s", { value: 99 })],
    ["wrong-type", scene("s", { value: true })],
    ["not-allowed", scene("s", { tag: "1" })],
  ])("is rejected with one result for the reason %s of one tag, before a request is sent", async (reason, message) => {
    const harness = await multiTagHarness();
    await harness.execute(message);
    expect(await harness.outcomes()).toEqual([`s rejected ${reason}`]);
    expect(harness.posts).toEqual([]);
  });

  test("ends with scene-refused for all other tags when a check before sending rejects one tag", async () => {
    const harness = await multiTagHarness({ max_step: 1 });
    await harness.execute(scene("s"));
    const outcomes = await harness.outcomes();
    expect(outcomes).toContain(`s/${LAST} rejected step-too-large`);
    expect(outcomes.filter((each) => each.endsWith("rejected scene-refused"))).toHaveLength(24);
    expect(harness.posts).toEqual([]);
  });

  test("waits with all of its writes while one of its tags has an unverified write", async () => {
    const harness = await multiTagHarness({ min_interval: "1s" }, { read_back_after: "20s" });
    await harness.execute({ id: "a", tag: LAST, value: 21 }, {}, 2_000);
    await harness.execute(scene("s", {}, { ttl_s: 120 }), {}, 10_000);
    expect(harness.posts).toHaveLength(1);
    await harness.clock.advance(60_000);
    expect(harness.posts.map((writes) => writes.length)).toEqual([1, 20, 5]);
  });

  test("is rejected as expired if the quota needs longer than its time to live", async () => {
    const harness = await multiTagHarness();
    await harness.pauseService(50);
    await harness.send(scene("s", {}, { ttl_s: 30 }));
    const message = expect.stringMatching(/^The last write may leave after 5\d s, and the time to live is 30 s/);
    expect(await harness.results()).toMatchObject([{ commandId: "s", outcome: "expired", message }]);
    expect(await harness.audit()).toHaveLength(1);
  });

  test("is rejected as expired if it needs more requests than the quota permits at once", async () => {
    const harness = await multiTagHarness({}, { group_window: "0s" });
    const reading = harness.source.read([LAST], "on-demand", new AbortController().signal);
    await harness.clock.advance(1_000);
    await reading;
    await harness.execute(scene("s", {}, { ttl_s: 50 }));
    expect(await harness.result("s")).toMatchObject({
      outcome: "expired",
      message: expect.stringMatching(/after 6\d s.* is 50 s/),
    });
  });

  test("is rejected if a tag needs a second person, or if max_per_hour permits only some of its writes", async () => {
    const second = await multiTagHarness({ second_person: true });
    await second.send(scene("s"));
    expect(await second.outcomes()).toEqual(["s rejected not-allowed"]);
    const limited = await multiTagHarness({}, { max_per_hour: 24 });
    await limited.send(scene("s"));
    expect(await limited.outcomes()).toEqual(["s rejected too-many"]);
  });

  test("is reported as a duplicate once when it is delivered again", async () => {
    const harness = await multiTagHarness();
    await harness.execute(scene("s"), {}, 10_000);
    await harness.send(scene("s"));
    expect((await harness.outcomes()).slice(25)).toEqual(["s duplicate"]);
  });

  test("writes all tags except one that a later command superseded while the message waited", async () => {
    const harness = await multiTagHarness({ min_interval: "1s" });
    await harness.pauseService(10);
    await harness.send(scene("s", {}, { ttl_s: 120 }));
    await harness.execute({ id: "b", tag: LAST, value: 23, ttl_s: 120 }, {}, 20_000);
    const outcomes = await harness.outcomes();
    expect(outcomes).toContain(`s/${LAST} superseded`);
    expect(outcomes).toContain("b confirmed");
    expect(outcomes.filter((each) => /^s\/.* confirmed$/.test(each))).toHaveLength(24);
  });
});
