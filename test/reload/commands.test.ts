import { generateKeyPairSync } from "node:crypto";
import { afterEach, describe, expect, test } from "vitest";
import type { Event } from "#src/core/model/event.ts";
import { publicKeyText } from "#src/engine/commands/approval/signature.ts";
import type { TransportRequest } from "#src/engine/source/transport.ts";
import { arrivalOf } from "../commands/rig.ts";
import { seededRandom } from "../commands/seeded-random.ts";
import { startVirtualWorker, type VirtualWorker } from "../virtual-worker.ts";

const SECOND = 1_000;
const MINUTE = 60_000;
let virtual: VirtualWorker;
afterEach(() => virtual.clear());

interface Post {
  readonly atMs: number;
  readonly tags: readonly { readonly tag_id: string; readonly value: number }[];
}

async function begin(commands: object = {}) {
  const posts: Post[] = [];
  const times: number[] = [];
  const note = (request: TransportRequest, atMs: number) => {
    if (!request.path.includes("/tags/")) return;
    times.push(atMs);
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
    .filter((tag) => tag.site.id === 12 && tag.kind === "analog" && !tag.cumulative)
    .map(({ id }) => id);
  const allowed = (ids: readonly string[], max = 30) =>
    ids.map((tag_id) => ({
      ...{ type: "number", site_id: 12, tag_id, min: 10, max, min_interval: "0s", max_per_day: 1_000 },
    }));
  await virtual.reload((file) => (file.commands.allow = allowed(tags)));
  await virtual.clock.advance(2 * MINUTE);
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
    Math.max(0, ...times.map((from) => times.filter((at) => at >= from && at < from + MINUTE).length));
  return { tags, allowed, send, results, posts, busiest };
}

describe("a changed allow-list", () => {
  test("applies new, narrower and removed entries to new and waiting commands", async () => {
    const { tags, allowed, send, results, posts } = await begin({ group_window: "20s" });
    const [a = "", b = "", c = ""] = tags;
    const [stays, narrowed, gone] = [await send(a, 20), await send(b, 28), await send(c, 21)];
    expect(posts).toEqual([]);
    await virtual.reload((file) => (file.commands.allow = [...allowed([a]), ...allowed([b], 25)]));
    await virtual.clock.advance(40 * SECOND);
    const after = await results();
    expect(after.get(stays)?.outcome).toBe("confirmed");
    for (const id of [narrowed, gone])
      expect(after.get(id)).toMatchObject({ outcome: "rejected", reason: "rules-changed" });
    expect(posts.flatMap(({ tags: written }) => written.map(({ tag_id }) => tag_id))).toEqual([a]);
    const refused = await send(b, 28);
    const unlisted = await send(c, 21);
    const lawful = await send(b, 24);
    await virtual.clock.advance(40 * SECOND);
    const last = await results();
    expect(last.get(refused)?.reason).toBe("out-of-range");
    expect(last.get(unlisted)?.reason).toBe("not-allowed");
    expect(last.get(lawful)?.outcome).toBe("confirmed");
  });

  test("does not prevent the read-back of a write that was already sent", async () => {
    const { tags, send, results, posts } = await begin({ read_back_after: "10s" });
    const id = await send(tags[0] ?? "", 22);
    await virtual.clock.advance(5 * SECOND);
    expect(posts).toHaveLength(1);
    await virtual.reload((file) => Object.assign(file.commands, { allow: [], enabled: false }));
    await virtual.clock.advance(MINUTE);
    expect((await results()).get(id)?.outcome).toBe("confirmed");
    const late = await send(tags[0] ?? "", 23);
    expect((await results()).get(late)?.reason).toBe("disabled");
  });

  test("rejects waiting commands when writing is disabled, and restores a timed value when writing is enabled again", async () => {
    const { tags, allowed, send, results, posts } = await begin();
    const [tag = ""] = tags;
    await virtual.reload(
      (file) =>
        (file.commands.allow = allowed(tags).map((entry) => ({ ...entry, min: -10_000, max: 10_000, restore: true }))),
    );
    const id = await send(tag, 27, { for_s: 60 });
    await virtual.clock.advance(20 * SECOND);
    expect((await results()).get(id)?.outcome).toBe("confirmed");
    await virtual.reload((file) => (file.commands.enabled = false));
    await virtual.clock.advance(3 * MINUTE);
    expect(posts).toHaveLength(1);
    await virtual.reload((file) => (file.commands.enabled = true));
    await virtual.clock.advance(10 * MINUTE);
    expect(posts).toHaveLength(2);
    expect((await results()).get(`${id}/restore`)?.outcome).toBe("confirmed");
  });

  test("closes writing under the two-person rule until the change is approved", async () => {
    const { tags, allowed, send, results, posts } = await begin();
    const approver = publicKeyText(generateKeyPairSync("ed25519").privateKey);
    const [a = "", b = ""] = tags;
    await virtual.reload((file) => {
      file.commands.approval = { file: `${file.state.folder}/approvals.json`, approvers: { ann: approver } };
      file.commands.allow = allowed([a]);
    });
    const first = await send(a, 20);
    await virtual.reload((file) => (file.commands.allow = allowed([a, b])));
    const second = await send(b, 20);
    await virtual.clock.advance(MINUTE);
    const told = await results();
    for (const id of [first, second]) expect(told.get(id)).toMatchObject({ outcome: "rejected", reason: "unapproved" });
    expect(posts).toEqual([]);
  });
});

describe("random commands, configuration changes and kills of the worker", () => {
  test("give each command one result, cause only allowed writes, and stay within 20 requests a minute", async () => {
    const { tags, allowed, send, results, posts, busiest } = await begin();
    const random = seededRandom(20_261_123);
    const sent = new Set<string>();
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
        sent.add(id);
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
    await virtual.clock.advance(5 * MINUTE);
    const ended = await results();
    const open = [...sent].filter((id) => !ended.has(id));
    expect(open).toEqual([]);
    const all = (await virtual.events()).filter(({ type }) => type === "command-result");
    expect(new Set(all.map(({ id }) => id)).size).toBe(all.length);
    const written = posts.flatMap(({ atMs, tags: each }) => each.map((write) => ({ atMs, ...write })));
    expect(written.length).toBeGreaterThan(40);
    expect(new Set(written.map(({ value: each }) => each)).size).toBe(written.length);
    for (const { atMs, tag_id, value: each } of written) {
      const holds = lawful.findLast(({ fromMs }) => fromMs <= atMs);
      expect(holds?.ids.has(tag_id), `${tag_id} = ${each} at ${atMs}`).toBe(true);
      expect(values.get(each)?.tag).toBe(tag_id);
    }
    expect(busiest()).toBeLessThanOrEqual(20);
    expect(new Set([...ended.values()].map(({ reason }) => reason))).toContain("rules-changed");
  }, 120_000);
});
