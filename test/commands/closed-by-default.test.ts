import { describe, expect, test } from "vitest";
import type { CommandMessage } from "#src/core/connector.ts";
import { documentSet } from "#src/engine/store/store.ts";
import { type ConfigInput, type Harness, type HarnessOptions, SITE, tagsOf } from "./command-harness.ts";
import { allowed, faulty, openHarness, TAG as tag } from "./test-harness.ts";

interface Case {
  readonly options?: HarnessOptions;
  readonly entry?: object;
  readonly config?: ConfigInput;
  readonly arrival?: Partial<CommandMessage>;
  readonly command?: object;
  readonly before?: (harness: Harness) => Promise<void> | void;
}

const ANNA = "MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=";
const TOKEN = { user: { id: 1, name: "", email: "" }, name: "", expiresAt: null };

function token(abilities: readonly string[], site: number) {
  return async (harness: Harness) => {
    const info = { ...TOKEN, abilities, sites: [{ id: site, displayName: "" }] };
    const stored = { info, checkedAt: "2026-01-01T00:00:00.000Z", warnedDays: null };
    await harness.store.commit({ documents: [{ set: documentSet("token", "main"), put: [["token", stored]] }] });
  };
}

async function outcomeOf({ options, entry, config, arrival, command, before }: Case) {
  const harness = await openHarness({ ...options, config: { allow: [allowed(tag, entry)], ...config } });
  await before?.(harness);
  await harness.execute({ id: "a", tag, value: 22, ...command }, arrival, 100_000);
  const results = (await harness.results()).filter(({ commandId }) => commandId === "a");
  return { posts: harness.posts.length, results };
}

test("a command is written when all conditions are met", async () => {
  const { posts, results } = await outcomeOf({});
  expect(results).toMatchObject([{ outcome: "confirmed" }]);
  expect(posts).toBe(1);
});

describe("a command that lacks one condition", () => {
  const simulator = faulty({ kind: "null_values" }, { endpoints: ["read"] }, {});
  const issued_at = "2026-11-20T12:00:00Z";
  test.each<[string, string, Case]>([
    ["commands.enabled", "disabled", { config: { enabled: false } }],
    ["rehearsal: false", "rehearsal", { config: { rehearsal: true } }],
    ["a kill switch that is off", "killed", { before: (harness) => harness.killSwitch.turnOn("a test", "now") }],
    ["armed writing", "not-armed", { options: { isArmed: false } }],
    ["a signed approval", "unapproved", { config: { approval: { approvers: { anna: ANNA }, file: "/nowhere" } } }],
    ["an allow-list entry", "not-allowed", { config: { allow: [] } }],
    ["a permitted sender", "not-allowed", { entry: { from: ["operator"] } }],
    ["a tag at the configured site", "unknown-tag", { entry: { site_id: 3 } }],
    ["a tag with the configured unit", "wrong-unit", { entry: { unit: "K" } }],
    ["a token", "no-ability", { options: { hasToken: false } }],
    ["a token with the permission write:tags", "no-ability", { before: token(["read:tags"], SITE) }],
    ["a token with access to the site", "no-ability", { before: token(["write:tags"], 3) }],
    ["a value of the tag's type", "wrong-type", { command: { value: true } }],
    ["a value within the range", "out-of-range", { entry: { max: 21.999999999999996 } }],
    ["a step within max_step", "step-too-large", { entry: { max_step: 1.9999999999999998 } }],
    ["a tag that has the expected value", "unexpected-value", { command: { expect: 19 } }],
    ["a tag whose value can be read", "value-unknown", { entry: { max_step: 3 }, options: { simulator } }],
    ["a time within `hours`", "outside-hours", { entry: { hours: "14:00-18:00" } }],
    ["the agreement of a second person", "not-seconded", { entry: { second_person: true } }],
    ["the option restore: true for a timed write", "not-restorable", { command: { for_s: 600 } }],
    ["an online gateway", "gateway-offline", { before: (harness) => harness.storeGateways(false) }],
    ["a message that is not retained", "retained", { arrival: { retained: true } }],
    ["a message not retained, with issued_at", "retained", { arrival: { retained: true }, command: { issued_at } }],
    ["remaining time to live", "expired", { arrival: { expirySeconds: 0 } }],
    ["a time of issue close to the worker's time", "clock-skew", { command: { issued_at: "2026-11-20T12:00:31Z" } }],
    ["a message that Plenum did not publish", "loop", { arrival: { properties: { "plenum-event-id": "x" } } }],
    ["a small payload", "too-large", { config: { max_payload_bytes: 64 }, command: { source: "x".repeat(64) } }],
    ["a payload without unknown fields", "invalid", { command: { priority: 8 } }],
  ])("is rejected without a write if this condition fails: %s (%s)", async (_what, reason, each) => {
    const { posts, results } = await outcomeOf(each);
    expect(posts).toBe(0);
    expect(reason === "too-large" ? [reason] : results.map((result) => result.reason)).toEqual([reason]);
  });
});

test("a command for any of 10,000 tags outside the allow-list is not written", async () => {
  const harness = await openHarness();
  const opened = new Set(tagsOf(harness.simulator, 25));
  const real = [...harness.simulator.world.tags.keys()].filter((id) => !opened.has(id));
  const near = [...opened].flatMap((id) => [` ${id}`, `${id} `, `0${id}`, `${id}.0`, `${id}/set`, `${id},1`]);
  const wild = ["*", "+", "#", "%", "1*", "", "null", "__proto__", "constructor", "10".repeat(64)];
  const numbers = Array.from({ length: 10_000 }, (_, n) => `${(n * 7_919) % 1_000_003}`);
  const tags = [...real, ...near, ...wild, ...numbers].filter((id) => !opened.has(id)).slice(0, 10_000);
  expect(tags).toHaveLength(10_000);
  for (const [n, tag] of tags.entries()) {
    if (n % 2 === 0) await harness.send({ id: `${n}`, tag, value: 22 });
    else await harness.send({ id: `${n}`, value: 22 }, { tagId: tag });
  }
  await harness.clock.advance(200_000);
  expect(harness.posts).toEqual([]);
  expect(harness.simulator.truth.writes()).toEqual([]);
  expect(harness.requests("write")).toBe(0);
});
