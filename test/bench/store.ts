import { rmSync } from "node:fs";
import { availableParallelism } from "node:os";
import type { Event } from "#src/core/model/event.ts";
import { systemClock } from "#src/core/runtime/clock.ts";
import { openStore } from "#src/engine/store/open.ts";
import { temporaryFolder } from "../real-servers.ts";
import { sampleEvent, valueEvent } from "../sample-events.ts";

/**
 * What the state store can do on this machine: `node test/bench/store.ts [events in the log, default 200000]`.
 * Wall times on a shared machine are noisy; compare with the plain write at the end of the list, not with another
 * day's figures.
 */
const logSize = Number(process.argv[2] ?? 200_000);
const folder = temporaryFolder("plenum-bench");
let store = await openStore({ folder, clock: systemClock });
await store.outbox.register("a", "beginning");
let next = 0;

const response = () => Array.from({ length: 20 }, () => valueEvent(next++, `tag-${next % 20}`));

async function commitResponse(events: readonly Event[]): Promise<void> {
  const put = events.map((event) => [event.subject, event.data] as const);
  await store.commit({ documents: [{ set: "value/main", put }], events });
}

function history(): Event {
  const points = Array.from({ length: 288 }, (_, n) => ({
    time: new Date(Date.parse("2026-11-02T00:00:00Z") + n * 300_000).toISOString(),
    value: 20 + Math.sin(n) * 2,
  }));
  const sample = sampleEvent("tag-history", {}, next++);
  return { ...sample, data: { ...sample.data, points } };
}

async function perSecond(name: string, unit: string, times: number, work: () => Promise<number>): Promise<void> {
  await work();
  const rates: number[] = [];
  for (let round = 0; round < 5; round += 1) {
    const from = performance.now();
    let done = 0;
    for (let n = 0; n < times; n += 1) done += await work();
    rates.push((done / (performance.now() - from)) * 1_000);
  }
  rates.sort((x, y) => x - y);
  const [low, , median, , high] = rates.map((rate) => Math.round(rate).toLocaleString("en"));
  say(name, `${median} ${unit}/s (${low} to ${high})`);
}

async function took(name: string, work: () => Promise<unknown>): Promise<void> {
  const from = performance.now();
  const answer = await work();
  say(name, `${(performance.now() - from).toFixed(1)} ms${answer === undefined ? "" : `, ${answer}`}`);
}

/** The longest time in which nothing else could run while some work was going on. */
async function longestBlock(work: () => Promise<unknown>): Promise<number> {
  let longest = 0;
  let last = performance.now();
  let running = true;
  const beat = () => {
    const now = performance.now();
    longest = Math.max(longest, now - last);
    last = now;
    if (running) setImmediate(beat);
  };
  beat();
  await work();
  running = false;
  return longest;
}

function say(name: string, figure: string): void {
  process.stdout.write(`${name.padEnd(58)} ${figure}\n`);
}

say("machine", `${availableParallelism()} cores, Node ${process.version}`);
await perSecond("commit of one response: 20 values, 20 documents", "commits", 200, async () => {
  await commitResponse(response());
  return 1;
});
await perSecond("commit of one quota slot", "commits", 200, async () => {
  await store.quotaStore.save("main", { id: next++, sentAtMs: 1, countedByMs: 2 });
  return 1;
});
await perSecond("commit of one history response: 20 tags, 5,760 points", "points", 10, async () => {
  await store.commit({ events: Array.from({ length: 20 }, history) });
  return 5_760;
});
await perSecond("offer of 100 events and settlement", "events", 20, async () => {
  const { events, again } = await store.outbox.next("a", 100);
  const last = events.at(-1);
  if (last === undefined) return 0;
  await store.outbox.settle("a", { again, through: last.position, rejected: [] });
  return events.length;
});

while (next < logSize) await store.commit({ events: Array.from({ length: 100 }, response).flat() });
const { bytes } = await store.describe();
say("the file", `${next.toLocaleString("en")} events, ${(bytes / 1024 ** 2).toFixed(0)} MiB`);
await took("lag of every sink", async () => {
  await store.outbox.lag();
});
await took("replay of everything: mark", async () => {
  await store.outbox.settle("a", { again: false, through: 1e9, rejected: [] });
  let marked = 0;
  const block = await longestBlock(async () => {
    marked = await store.outbox.replay("a", "2020-01-01T00:00:00Z");
  });
  await store.outbox.setEnded("a", "bench");
  await store.outbox.setEnded("a", null);
  return `${marked} marked, at most ${block.toFixed(0)} ms at a time`;
});
await store.close();
await took("opening, with its check for damage", async () => {
  store = await openStore({ folder, clock: systemClock });
});
await took("pruning to a half, telemetry of 1 sink lost", async () => {
  let removed = 0;
  await store.outbox.register("b", "beginning");
  const block = await longestBlock(async () => {
    const bounds = { ranMs: 0, maxBytes: bytes / 2, maxAgeMs: 1e12, replayMs: 1e12 };
    removed = (await store.outbox.prune(bounds)).removed;
  });
  return `${removed} removed, at most ${block.toFixed(0)} ms at a time`;
});
const { bytes: after } = await store.describe();
say(
  "the file after that",
  `${(after / 1024 ** 2).toFixed(0)} MiB for a bound of ${(bytes / 2 / 1024 ** 2).toFixed(0)}`,
);
await store.close();
rmSync(folder, { recursive: true });
