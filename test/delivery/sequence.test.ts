import { spawn } from "node:child_process";
import { once } from "node:events";
import { copyFileSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { Config } from "#src/app/config/config.ts";
import { Rejected, Retryable } from "#src/core/errors/errors.ts";
import type { EventNumber } from "#src/core/model/delivery-sequence.ts";
import type { Event } from "#src/core/model/event.ts";
import { buildSnapshotRequest } from "#src/engine/delivery/send-state-snapshot.ts";
import { openStore } from "#src/engine/store/open.ts";
import type { Store } from "#src/engine/store/store.ts";
import { sampleEvent, valueEvent } from "../sample-events.ts";
import { replay, seed } from "../seed.ts";
import { editState } from "../store/store-steps.ts";
import { testFolder } from "../test-resources.ts";
import { type ScriptedSink, scriptedSink } from "./dispatcher-harness.ts";
import { commit, harness, started, stop, useHarness, values } from "./dispatcher-steps.ts";

useHarness();

const alarm = (n: number) => sampleEvent("alarm-raised", {}, n);

interface Offer {
  readonly id: string;
  readonly sequence: EventNumber | null | undefined;
}

function listener(): ScriptedSink & { readonly offers: Offer[] } {
  const offers: Offer[] = [];
  const sink = scriptedSink((batch, _signal, _accepted, offer) => {
    offers.push(...batch.map(({ id }, index) => ({ id, sequence: offer?.sequences?.[index] })));
    return { rejected: [] };
  });
  return Object.assign(sink, { offers });
}

/** Delivers all events, stops, and returns the offers. */
async function delivered(sink: ReturnType<typeof listener>, delivery: object = {}): Promise<readonly Offer[]> {
  const before = sink.offers.length;
  const dispatcher = await started({ a: sink }, { sequence: true, batch: 10, ...delivery });
  await harness.clock.advance(60_000);
  await stop(dispatcher, 1_000);
  return sink.offers.slice(before);
}

const numbers = (offers: readonly Offer[]) => offers.map(({ sequence }) => sequence?.number ?? null);
const epochs = (offers: readonly Offer[]) => [...new Set(offers.map(({ sequence }) => sequence?.epoch))];

describe("the sequence numbers of a sink", () => {
  test("continue after a change of the filter", async () => {
    await commit([...values(0, 3), alarm(1)]);
    expect(numbers(await delivered(listener(), { filter: { kinds: ["tag-*"] } }))).toEqual([1, 2, 3]);
    await commit([valueEvent(4), alarm(2)]);
    expect(numbers(await delivered(listener()))).toEqual([4, 5]);
  });

  test("are counted with `sequence: false` too, but not sent", async () => {
    await commit(values(0, 3));
    const unnumbered = await delivered(listener(), { sequence: false });
    expect(unnumbered.map(({ sequence }) => sequence)).toEqual(Array(3).fill(undefined));
    await commit(values(3, 1));
    expect(numbers(await delivered(listener()))).toEqual([4]);
  });

  test("are used once each for events accepted early and for the other events of the batch, which are retried", async () => {
    const sink = listener();
    const take = sink.respond;
    sink.respond = async (batch, signal, accepted, offer) => {
      await take(batch, signal, accepted, offer);
      if (batch.length < 4) return { rejected: [] };
      accepted?.(1);
      accepted?.(3);
      throw new Retryable("gone in the middle");
    };
    await commit(values(0, 4));
    expect(numbers(await delivered(sink))).toEqual([1, 2, 3, 4, 4]);
  });

  test("include the number of an event that became a dead letter after its last retry", async () => {
    const sink = listener();
    const take = sink.respond;
    sink.respond = async (batch, ...rest) => {
      await take(batch, ...rest);
      if (batch[0]?.id === valueEvent(0).id) throw new Rejected("not this one");
      return { rejected: [] };
    };
    await commit(values(0, 2));
    expect(numbers(await delivered(sink, { batch: 1, schedule: ["1s"] }))).toEqual([1, 1, 2]);
    expect((await harness.store.outbox.deadLetters("a"))[0]?.sequence?.number).toBe(1);
  });

  test("are neither given to nor used up by replayed events and snapshots", async () => {
    const sink = listener();
    await commit(values(0, 2));
    await delivered(sink);
    await harness.store.outbox.replay("a", "2026-11-02T00:00:00Z");
    const held = { value: { id: 1, displayName: "Tower" }, siteId: 1, missingSince: null };
    await harness.store.commit({
      documents: [buildSnapshotRequest("a", "2020-01-01T00:00:00Z"), { set: "site/main", put: [["1", held]] }],
    });
    const again = await delivered(sink);
    expect(again).toHaveLength(3);
    expect(numbers(again)).toEqual([null, null, null]);
    await commit(values(2, 1));
    expect(numbers(await delivered(sink))).toEqual([3]);
  });
});

describe("a new epoch, in which sequence numbers begin with 1", () => {
  const bounds = { maxBytes: 2 ** 30, maxAgeMs: 2 ** 40, ranMs: 0, replayMs: 2 ** 40 };

  async function twoEpochs(between: (store: Store) => Promise<void>): Promise<void> {
    const sink = listener();
    await commit(values(0, 3));
    const before = await delivered(sink);
    await between(harness.store);
    await commit(values(100, 2));
    const after = (await delivered(sink)).filter(({ sequence }) => sequence !== null);
    expect(numbers(after)).toEqual(after.map((_, n) => n + 1));
    expect(epochs([...before, ...after])).toHaveLength(2);
  }

  test("starts when an event was removed before it was offered to the sink", () =>
    twoEpochs(async (store) => {
      await store.commit({ events: values(3, 5) });
      expect((await store.outbox.prune({ ...bounds, maxBytes: 0 })).gaps).toHaveLength(1);
    }));

  test("does not start when the removed events are excluded by the filter or already settled", async () => {
    const only = { filter: { kinds: ["tag-*"] } };
    await commit(values(0, 3));
    const before = await delivered(listener(), only);
    await commit([alarm(1)]);
    const wanted = (_: string, event: Event) => event.type === "tag-value";
    await harness.store.outbox.prune({ ...bounds, maxBytes: 0, wanted });
    await commit(values(3, 1));
    const after = await delivered(listener(), only);
    expect(numbers(after)).toEqual([4]);
    expect(epochs([...before, ...after])).toHaveLength(1);
  });

  test("starts when an event was damaged before it was offered to the sink", () =>
    twoEpochs(async (store) => {
      await store.commit({ events: values(3, 2) });
      editState(harness.folder, "update event set body = replace(body, 'tag', 'gat') where position = 4");
      const { events } = await store.outbox.next("a", 10);
      expect(events).toHaveLength(1);
    }));

  test("starts when an ended sink is resumed", () =>
    twoEpochs(async (store) => {
      await store.outbox.setEnded("a", "410 Gone");
      await store.outbox.setEnded("a", null);
    }));

  test("starts when the cursor of the sink was damaged", async () => {
    await commit(values(0, 3));
    const before = await delivered(listener());
    editState(harness.folder, "update sink set counted = counted + 1");
    const after = await delivered(listener());
    expect(numbers(after)).toEqual([1, 2, 3]);
    expect(epochs([...before, ...after])).toHaveLength(2);
  });

  test("starts when the state was restored from a copy, but not when the state is only opened again", async () => {
    const folder = testFolder();
    const { clock } = harness;
    const epochOf = async () => {
      const store = await openStore({ folder, clock });
      await store.outbox.register("a", "beginning");
      const { counted } = await store.outbox.next("a", 1);
      if (counted === undefined) await store.commit({ events: values(0, 1) });
      const epoch = (await store.outbox.next("a", 1)).counted?.epoch;
      await store.close();
      return epoch;
    };
    const first = await epochOf();
    expect(await epochOf()).toBe(first);
    const file = join(folder, "plenum.db");
    copyFileSync(file, `${file}.backup`);
    rmSync(file);
    copyFileSync(`${file}.backup`, file);
    const restored = await epochOf();
    expect(restored).not.toBe(first);
    expect(await epochOf()).toBe(restored);
  });
});

test("after kill -9 at random moments the file has the numbers 1, 2, 3 … without a gap, each for one event", async () => {
  const folder = testFolder();
  let random = seed;
  for (let run = 0; run < 12; run += 1) {
    const child = spawn(process.execPath, ["--input-type=module-typescript", "--eval", workerProgram(folder)], {
      cwd: join(import.meta.dirname, "../.."),
      stdio: ["ignore", "pipe", "inherit"],
    });
    random = (random * 48_271) % 2_147_483_647;
    let lines = 1 + (random % 40);
    child.stdout.on("data", (chunk: Buffer) => {
      lines -= chunk.toString().split("\n").length - 1;
      if (lines <= 0) child.kill("SIGKILL");
    });
    await once(child, "exit");
  }
  const lines = readdirSync(join(folder, "events"))
    .sort()
    .flatMap((name) => readFileSync(join(folder, "events", name), "utf8").split("\n"))
    // A kill may leave half a line at the end of a file.
    .filter((line) => line.endsWith("}"))
    .map((line) => JSON.parse(line) as { id: string; sequence: string; sequenceepoch: string });
  expect(new Set(lines.map(({ sequenceepoch }) => sequenceepoch)).size, replay).toBe(1);
  const byNumber = new Map<number, string>();
  let highest = 0;
  for (const { id, sequence } of lines) {
    const number = Number(sequence);
    expect(number, replay).toBeLessThanOrEqual(highest + 1);
    expect(byNumber.get(number) ?? id, replay).toBe(id);
    byNumber.set(number, id);
    highest = Math.max(highest, number);
  }
  const store = await openStore({ folder: join(folder, "state"), clock: harness.clock });
  const log = (await store.outbox.latest(1_000_000)).map(({ event }) => event).toReversed();
  await store.close();
  const wanted = log.filter(({ type }) => type === "tag-value").map(({ id }) => id);
  expect([...byNumber.values()], replay).toEqual(wanted.slice(0, highest));
  expect(highest, replay).toBeGreaterThan(12);
});

function workerProgram(folder: string): string {
  return `
    import { setTimeout } from "node:timers/promises";
    import { createFileSink } from "./connectors/file/sink.ts";
    import { FileConfig } from "./connectors/file/config.ts";
    import { DeliveryConfig } from "./src/engine/delivery/config.ts";
    import { createEventDispatcher } from "./src/engine/delivery/dispatcher.ts";
    import { openStore } from "./src/engine/store/open.ts";
    import { systemClock } from "./src/core/runtime/clock.ts";
    import { contextFor } from "./test/connectors/context.ts";
    import { sampleEvent, valueEvent } from "./test/sample-events.ts";
    const store = await openStore({ folder: ${JSON.stringify(join(folder, "state"))}, clock: systemClock });
    const context = contextFor("lake");
    const sink = createFileSink(FileConfig.parse({ folder: ${JSON.stringify(join(folder, "events"))} }), context);
    const delivery = DeliveryConfig.parse({
      sequence: true, from: "beginning", batch: 7, filter: { kinds: ["tag-value"] },
    });
    const dispatcher = createEventDispatcher({
      ...context, outbox: store.outbox, store,
      sinks: [{ name: "lake", connector: "file", sink, delivery }],
    });
    await dispatcher.start(new AbortController().signal);
    for (let n = (await store.outbox.latest(1))[0]?.position ?? 0; ; n += 3) {
      await store.commit({ events: [valueEvent(n), sampleEvent("alarm-raised", {}, n + 1), valueEvent(n + 2)] });
      process.stdout.write("committed\\n");
      await setTimeout(1);
    }`;
}

test("the configuration accepts `sequence` only for connectors that send the number", () => {
  const complaints = (connector: object) => {
    const { error } = Config.safeParse({
      sources: {
        main: { base_url: "https://service.example.com", time_zone: "Europe/Oslo", token: { env: "TOKEN" } },
      },
      sinks: { a: { ...connector, sequence: true } },
    });
    return error?.issues.map(({ path, message }) => `${path.join(".")}: ${message}`) ?? [];
  };
  expect(complaints({ influxdb: { url: "https://influxdb.example.com", bucket: "b" } })).toEqual([
    "sinks.a.sequence: Nothing there carries a number; `sequence` is for mqtt, kafka, webhook, file, stdout.",
  ]);
  expect(complaints({ file: { folder: "/var/lib/plenum/events" } })).toEqual([]);
});
