import { describe, expect, test } from "vitest";
import { syncSet } from "#src/engine/sync/stored-documents.ts";
import { SITE } from "./command-harness.ts";
import { allowed, openHarness, TAG, TAGS } from "./test-harness.ts";

const OTHER = TAGS[1] ?? "";
const UNTIL = "2026-11-20T13:00:00.000Z";
const LOCK = { owner: "anna", reason: "The valve is exchanged.", until: UNTIL };
const target = (scope: "tag" | "system" | "site", id: string) => ({ source: "main", scope, id });
const tagTarget = target("tag", TAG);

async function lockHarness(entry: object = {}) {
  const limits = { min_interval: "1s", ...entry };
  const harness = await openHarness({ config: { allow: [allowed(TAG, limits), allowed(OTHER, limits)] } });
  const lock = (where = tagTarget, lock: typeof LOCK | null = LOCK) =>
    harness.commands.changeLock({ target: where, lock, by: "root" });
  const outcomeOf = (id: string, tag = TAG, changes: object = {}) => harness.outcomeOf({ id, tag, value: 22 }, changes);
  return { harness, lock, outcomeOf };
}

describe("a write lock", () => {
  test("rejects commands of other senders with its owner, end and reason, and accepts the owner's commands", async () => {
    const { harness, lock, outcomeOf } = await lockHarness();
    await lock();
    expect(await outcomeOf("a")).toBe("rejected locked");
    const { message } = (await harness.result("a")) ?? {};
    expect(message).toBe(`Tag ${TAG} is locked by anna until ${UNTIL}: The valve is exchanged.`);
    expect(await outcomeOf("b", TAG, { properties: { user: "anna" } })).toBe("confirmed");
    expect(await outcomeOf("c", OTHER)).toBe("confirmed");
    await lock(tagTarget, null);
    await lock(tagTarget, { ...LOCK, owner: "broker" });
    await harness.storeLiveValue(TAG, 20);
    expect(await outcomeOf("d")).toBe("confirmed");
    expect(await outcomeOf("e", TAG, { via: "operator" })).toBe("rejected locked");
  });

  test.each([
    ["site", `${SITE}`],
    ["system", "360"],
  ] as const)("on a %s applies to all tags of that object", async (scope, id) => {
    const { harness, lock, outcomeOf } = await lockHarness();
    const put = [[TAG, { systemIds: ["360"], toldAt: UNTIL }]] as const;
    await harness.store.commit({ documents: [{ set: syncSet("tag-system", "main"), put }] });
    await lock(target(scope, id));
    expect(await outcomeOf("a")).toBe("rejected locked");
    expect(await outcomeOf("b", OTHER)).toBe(scope === "site" ? "rejected locked" : "confirmed");
  });

  test("remains over a restart, ends at its end time or by unlocking, and is recorded in the audit log", async () => {
    const { harness, lock, outcomeOf } = await lockHarness();
    await lock();
    await harness.restart();
    expect(await outcomeOf("a")).toBe("rejected locked");
    await harness.clock.advance(3_600_000);
    expect(await outcomeOf("b")).toBe("confirmed");
    await lock(tagTarget, { ...LOCK, until: "2026-11-20T23:00:00.000Z" });
    await lock(tagTarget, null);
    await harness.storeLiveValue(TAG, 20);
    expect(await outcomeOf("c")).toBe("confirmed");
    const audit = (await harness.audit()).filter(({ step }) => step.startsWith("writing-"));
    expect(audit.map(({ step }) => step)).toEqual(["writing-locked", "writing-locked", "writing-unlocked"]);
    expect(audit[0]?.detail).toEqual({ ...tagTarget, ...LOCK, by: "root" });
  });

  test("rejects a command that waits when the lock begins", async () => {
    const { harness, lock } = await lockHarness({ second_person: true });
    await harness.send({ id: "a", tag: TAG, value: 22, ttl_s: 120 });
    await lock();
    await harness.execute({ second: "a", value: 22 }, { purpose: "second" });
    expect(await harness.outcomes()).toEqual(["a rejected locked"]);
  });

  test("delays the restore of another sender's timed write until the lock ends", async () => {
    const { harness, lock } = await lockHarness({ restore: true });
    await harness.execute({ id: "a", tag: TAG, value: 22, for_s: 60 });
    await lock();
    await harness.clock.advance(600_000);
    expect(harness.posts).toHaveLength(1);
    expect(harness.commands.notices().join()).toMatch(/locked by anna/);
    await harness.clock.advance(3_600_000);
    expect(harness.posts.flat().map(({ value }) => value)).toEqual([22, 20]);
  });

  test("cannot be set over another owner's lock or with an end in the past, and can be ended only once", async () => {
    const { lock } = await lockHarness();
    await expect(lock(tagTarget, { ...LOCK, until: "2026-11-20T11:00:00.000Z" })).rejects.toThrow(/in the past/);
    await lock();
    await expect(lock(tagTarget, { ...LOCK, owner: "boris" })).rejects.toThrow(/locked by anna/);
    await lock(tagTarget, { ...LOCK, reason: "It takes longer." });
    await lock(tagTarget, null);
    await expect(lock(tagTarget, null)).rejects.toThrow(/no lock of tag/);
  });

  test("makes the status page show the lock instead of the write form", async () => {
    const { harness, lock } = await lockHarness();
    await lock();
    expect((await harness.commands.findWritableTag("main", TAG))?.closed).toMatch(/locked by anna/);
  });
});
