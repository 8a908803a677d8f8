import { generateKeyPairSync } from "node:crypto";
import { afterEach, describe, expect, test } from "vitest";
import type { Event } from "#src/core/model/event.ts";
import { derivePublicKeyText } from "#src/engine/commands/approval/signature.ts";
import type { TransportRequest } from "#src/engine/source/transport.ts";
import { arrivalOf } from "../commands/command-harness.ts";
import { seededRandom } from "../commands/seeded-random.ts";
import { startVirtualWorker, type VirtualWorker } from "../virtual-worker.ts";

const SECOND_MS = 1_000;
const MINUTE_MS = 60_000;
let virtual: VirtualWorker;
afterEach(() => virtual.clear());

interface Post {
  readonly atMs: number;
  readonly tags: readonly { readonly tag_id: string; readonly value: number }[];
}

async function startWriting(commands: object = {}) {
  const posts: Post[] = [];
  const requestTimes: number[] = [];
  const note = (request: TransportRequest, atMs: number) => {
    if (!request.path.includes("/tags/")) return;
    requestTimes.push(atMs);
    if (request.method === "POST")
      posts.push({ atMs, ...(JSON.parse(request.body ?? "{}") as { tags: Post["tags"] }) });
  };
  virtual = await startVirtualWorker({
    simulator: { sites: [12], alarms: { recorded: false } },
    source: { read: [{ name: "all", every: "1m" }] },
    eventsFolder: null,
    commands: { enabled: true, read_back_after: "1s", ...commands },
    around: (transport, clock) => (request, signal) => {
      note(request, clock.monotonic());
      return transport(request, signal);
    },
  });
  const tags = [...virtual.simulator.world.tags.values()]
    .filter((tag) => tag.site.id === 12 && tag.kind === "analog" && !tag.isCumulative)
    .map(({ id }) => id);
  const allowed = (ids: readonly string[], max = 30) =>
    ids.map((tag_id) => ({
      ...{ type: "number", site_id: 12, tag_id, min: 10, max, min_interval: "0s", max_per_day: 1_000 },
    }));
  await virtual.reload((file) => (file.commands.allow = allowed(tags)));
  await virtual.clock.advance(2 * MINUTE_MS);
  let serial = 0;
  const send = async (tagId: string, value: number, more: object = {}) => {
    serial += 1;
    const id = `c${serial}`;
    const text = JSON.stringify({ id, tag: tagId, value, ...more });
    const arrival = arrivalOf(text, virtual.clock.now(), { source: null });
    await virtual.worker.accept(arrival);
    return id;
  };
  const results = async () =>
    new Map(
      (await virtual.events())
        .filter((event): event is typeof event & Event<"command-result"> => event.type === "command-result")
        .map(({ data }) => [data.commandId, data]),
    );
  const busiest = () =>
    Math.max(0, ...requestTimes.map((from) => requestTimes.filter((at) => at >= from && at < from + MINUTE_MS).length));
  return { tags, allowed, send, results, posts, busiest };
}

describe("a changed allow-list", () => {
  test("applies added, narrowed and removed entries to new and to waiting commands", async () => {
    const { tags, allowed, send, results, posts } = await startWriting({ group_window: "20s" });
    const [a = "", b = "", c = ""] = tags;
    const [stays, narrowed, gone] = [await send(a, 20), await send(b, 28), await send(c, 21)];
    expect(posts).toEqual([]);
    await virtual.reload((file) => (file.commands.allow = [...allowed([a]), ...allowed([b], 25)]));
    await virtual.clock.advance(40 * SECOND_MS);
    const resultsAfter = await results();
    expect(resultsAfter.get(stays)?.outcome).toBe("confirmed");
    for (const id of [narrowed, gone])
      expect(resultsAfter.get(id)).toMatchObject({ outcome: "rejected", reason: "rules-changed" });
    expect(posts.flatMap(({ tags: written }) => written.map(({ tag_id }) => tag_id))).toEqual([a]);
    const outOfRangeId = await send(b, 28);
    const unlisted = await send(c, 21);
    const lawful = await send(b, 24);
    await virtual.clock.advance(40 * SECOND_MS);
    const lastResults = await results();
    expect(lastResults.get(outOfRangeId)?.reason).toBe("out-of-range");
    expect(lastResults.get(unlisted)?.reason).toBe("not-allowed");
    expect(lastResults.get(lawful)?.outcome).toBe("confirmed");
  });

  test("does not prevent the read-back of a write that was already sent", async () => {
    const { tags, send, results, posts } = await startWriting({ read_back_after: "10s" });
    const id = await send(tags[0] ?? "", 22);
    await virtual.clock.advance(5 * SECOND_MS);
    expect(posts).toHaveLength(1);
    await virtual.reload((file) => Object.assign(file.commands, { allow: [], enabled: false }));
    await virtual.clock.advance(MINUTE_MS);
    expect((await results()).get(id)?.outcome).toBe("confirmed");
    const lateId = await send(tags[0] ?? "", 23);
    expect((await results()).get(lateId)?.reason).toBe("disabled");
  });

  test("rejects waiting commands when writing is disabled, and reverts a timed write when writing is enabled again", async () => {
    const { tags, allowed, send, results, posts } = await startWriting();
    const [tag = ""] = tags;
    await virtual.reload(
      (file) =>
        (file.commands.allow = allowed(tags).map((entry) => ({ ...entry, min: -10_000, max: 10_000, restore: true }))),
    );
    const id = await send(tag, 27, { for_s: 60 });
    await virtual.clock.advance(20 * SECOND_MS);
    expect((await results()).get(id)?.outcome).toBe("confirmed");
    await virtual.reload((file) => (file.commands.enabled = false));
    await virtual.clock.advance(3 * MINUTE_MS);
    expect(posts).toHaveLength(1);
    await virtual.reload((file) => (file.commands.enabled = true));
    await virtual.clock.advance(10 * MINUTE_MS);
    expect(posts).toHaveLength(2);
    expect((await results()).get(`${id}/restore`)?.outcome).toBe("confirmed");
  });

  test("rejects commands under the two-person rule while the change is not approved", async () => {
    const { tags, allowed, send, results, posts } = await startWriting();
    const approver = derivePublicKeyText(generateKeyPairSync("ed25519").privateKey);
    const [a = "", b = ""] = tags;
    await virtual.reload((file) => {
      file.commands.approval = { file: `${file.state.folder}/approvals.json`, approvers: { ann: approver } };
      file.commands.allow = allowed([a]);
    });
    const firstId = await send(a, 20);
    await virtual.reload((file) => (file.commands.allow = allowed([a, b])));
    const secondId = await send(b, 20);
    await virtual.clock.advance(MINUTE_MS);
    const replies = await results();
    for (const id of [firstId, secondId])
      expect(replies.get(id)).toMatchObject({ outcome: "rejected", reason: "unapproved" });
    expect(posts).toEqual([]);
  });
});

describe("random commands, configuration changes and kills of the worker", () => {
  test("give each command one result, cause only allowed writes, and stay within 20 requests a minute", async () => {
    const { tags, allowed, send, results, posts, busiest } = await startWriting();
    const random = seededRandom(20_261_123);
    const sentIds = new Set<string>();
    const values = new Map<number, { readonly tag: string; readonly id: string }>();
    const lawful: { readonly fromMs: number; readonly ids: ReadonlySet<string> }[] = [
      { fromMs: 0, ids: new Set(tags) },
    ];
    let value = 10;
    for (let round = 0; round < 60; round += 1) {
      for (let n = 0; n < 4; n += 1) {
        value = Math.round((value + 0.05) * 100) / 100;
        const tag = random.pick(tags);
        const id = await send(tag, value);
        sentIds.add(id);
        values.set(value, { tag, id });
      }
      await virtual.clock.advance(random.below(6_000));
      if (round % 3 === 0) {
        const some = tags.filter(() => random.chance(0.7));
        await virtual.reload((file) => {
          file.commands.allow = allowed(some);
          file.commands.group_window = random.pick(["0s", "200ms", "2s"]);
          file.sources.main.read[0].every = random.pick(["30s", "1m"]);
        });
        lawful.push({ fromMs: virtual.clock.monotonic(), ids: new Set(some) });
      }
      if (round % 17 === 16) await virtual.restart(random.pick(["crash", "stop"] as const));
    }
    await virtual.clock.advance(5 * MINUTE_MS);
    const finalResults = await results();
    const missingIds = [...sentIds].filter((id) => !finalResults.has(id));
    expect(missingIds).toEqual([]);
    const all = (await virtual.events()).filter(({ type }) => type === "command-result");
    expect(new Set(all.map(({ id }) => id)).size).toBe(all.length);
    const written = posts.flatMap(({ atMs, tags: each }) => each.map((write) => ({ atMs, ...write })));
    expect(written.length).toBeGreaterThan(40);
    expect(new Set(written.map(({ value: each }) => each)).size).toBe(written.length);
    for (const { atMs, tag_id, value: each } of written) {
      const rulesInForce = lawful.findLast(({ fromMs }) => fromMs <= atMs);
      expect(rulesInForce?.ids.has(tag_id), `${tag_id} = ${each} at ${atMs}`).toBe(true);
      expect(values.get(each)?.tag).toBe(tag_id);
    }
    expect(busiest()).toBeLessThanOrEqual(20);
    expect(new Set([...finalResults.values()].map(({ reason }) => reason))).toContain("rules-changed");
  });
});
