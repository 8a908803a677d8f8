import { describe, expect, onTestFinished, test } from "vitest";
import type { Receipt, Sink } from "#src/core/connector.ts";
import { type Event, eventOrderingKey, toCloudEvent } from "#src/core/model/event.ts";
import { systemClock } from "#src/core/runtime/clock.ts";
import { ticksUntil } from "../effort.ts";
import { AWKWARD_TEXTS, sampleEvent, sampleOfEveryKind, TAG, valueEvent } from "../sample-events.ts";

/** The contract of every sink. `make` returns a server and a sink that is not open yet. */
export interface SinkServer {
  readonly sink: Sink;
  received(): Promise<readonly ReceivedEvent[]>;
  breakServer?(): Promise<void>;
  repairServer?(): Promise<void>;
  /** From now on the server accepts connections and never answers. */
  stall?(): Promise<void>;
  dispose(): Promise<void>;
}

export interface ReceivedEvent {
  /** The event's id unless `identity` says otherwise. */
  readonly identity: string;
  /** The complete CloudEvent, if the server gets it. */
  readonly event?: unknown;
}

export interface SinkSuite {
  make(): Promise<SinkServer>;
  /** Abilities that the server cannot have; their tests are skipped. */
  readonly without?: readonly ("breakServer" | "stall")[];
  /** For servers that do not store event ids. */
  readonly identity?: (event: Event) => string;
}

/** Ticks of 100 ms, of which the first passes before the abort. */
const PROMPT_TICKS = 20;

export function describeSink(name: string, suite: SinkSuite): void {
  const identity = suite.identity ?? ((event: Event) => event.id);

  async function startServer(): Promise<SinkServer> {
    const end = await suite.make();
    onTestFinished(async () => {
      await end.sink.close();
      await end.dispose();
    });
    return end;
  }

  async function expectInOrder(end: SinkServer, expected: readonly Event[]): Promise<void> {
    const listMissingIds = async () => {
      const receivedIds = new Set((await end.received()).map((one) => one.identity));
      return expected.map(identity).filter((id) => !receivedIds.has(id));
    };
    await expect.poll(listMissingIds).toEqual([]);
    const arrived = await end.received();
    const firstPositions = new Map(arrived.map(({ identity }, position) => [identity, position] as const).toReversed());
    const latestByKey = new Map<string, number>();
    for (const event of expected) {
      const position = firstPositions.get(identity(event)) ?? -1;
      expect(position, "order within a key").toBeGreaterThanOrEqual(latestByKey.get(eventOrderingKey(event)) ?? -1);
      latestByKey.set(eventOrderingKey(event), position);
    }
    for (const { identity: id, event } of arrived) {
      if (event === undefined) continue;
      const sentEvent = expected.find((candidate) => identity(candidate) === id);
      if (sentEvent !== undefined) expect(event).toEqual(JSON.parse(JSON.stringify(toCloudEvent(sentEvent))));
    }
  }

  const can = (ability: "breakServer" | "stall") => !(suite.without ?? []).includes(ability);

  describe(`${name}: behaviour of every sink`, () => {
    test("delivers accepted events once and in order, even after a second open", async () => {
      const end = await startServer();
      await end.sink.open(neverAborted());
      await end.sink.open(neverAborted());
      const batch = [1, 2, 3, 4, 5].flatMap((n) => [valueEvent(n, "10042"), valueEvent(n, "10043")]);
      await offerBatch(end.sink, batch);
      await expectInOrder(end, batch);
      expect(await end.received()).toHaveLength(batch.length);
    });

    test("accepts an event of every kind", async () => {
      const end = await startServer();
      await end.sink.open(neverAborted());
      const samples = sampleOfEveryKind();
      expect(await offerBatch(end.sink, samples)).toEqual([]);
      await expectInOrder(
        end,
        samples.filter((event) => event.type === "tag-value" || event.type.startsWith("alarm-")),
      );
    });

    test("delivers special texts, null, booleans and extreme numbers unchanged, and the events before and after them", async () => {
      const end = await startServer();
      await end.sink.open(neverAborted());
      const values = [null, true, false, 0, -0.1, 1e-300, 1.7e308, Number.MAX_SAFE_INTEGER, null];
      const valueEvents = values.map((value, n) => valueEvent(n, "10044", value));
      const batch = [...AWKWARD_TEXTS.flatMap((text, n) => [valueEvent(n), awkward(text, n)]), ...valueEvents];
      expect(await offerBatch(end.sink, batch)).toEqual([]);
      await expectInOrder(end, batch);
    });

    test("accepts the same event twice", async () => {
      const end = await startServer();
      await end.sink.open(neverAborted());
      await offerBatch(end.sink, [valueEvent(1)]);
      await offerBatch(end.sink, [valueEvent(1)]);
      await expectInOrder(end, [valueEvent(1)]);
    });

    test("closes without having been opened", async () => {
      const end = await suite.make();
      await end.sink.close();
      await end.dispose();
    });

    test("rejects a write at once when the signal has already aborted, and sends no event", async () => {
      const end = await startServer();
      await end.sink.open(neverAborted());
      const reason = new Error("stop");
      await expect(end.sink.write([valueEvent(1)], AbortSignal.abort(reason))).rejects.toThrow();
      expect(await end.received()).toEqual([]);
    });

    test("checks the connection without sending an event", async () => {
      const end = await startServer();
      if (end.sink.probe === undefined) return;
      await end.sink.probe(neverAborted());
      await end.sink.open(neverAborted());
      await offerBatch(end.sink, [valueEvent(1)]);
      await expectInOrder(end, [valueEvent(1)]);
      expect(await end.received()).toHaveLength(1);
    });

    if (can("breakServer")) {
      test("settles no event while the server is down, and delivers all events once the server is back", async () => {
        const end = await startServer();
        if (!end.breakServer || !end.repairServer) throw new Error("The server cannot break and heal.");
        await end.sink.open(neverAborted());
        const eventsBefore = [valueEvent(1), valueEvent(2)];
        await offerBatch(end.sink, eventsBefore);
        await end.breakServer();
        const eventsDuring = [valueEvent(3), valueEvent(4, "10043"), valueEvent(5)];
        const unsettled = await writeAndListStored(end.sink, eventsDuring);
        expect(unsettled, "nothing can be accepted by a server that is away").toEqual(eventsDuring);
        await end.repairServer();
        await offerBatch(end.sink, eventsDuring);
        await expectInOrder(end, [...eventsBefore, ...eventsDuring]);
      });

      test("closes after a failed open", async () => {
        const end = await suite.make();
        if (end.breakServer === undefined) throw new Error("The server cannot break.");
        await end.breakServer();
        await end.sink.open(AbortSignal.timeout(1_000)).then(
          () => "a connector without a connection has nothing to open",
          (error: unknown) => expect(error).toBeInstanceOf(Error),
        );
        await end.sink.close();
        await end.dispose();
      });
    }

    if (can("stall")) {
      test("rejects a write promptly when the signal aborts during that write", async () => {
        const end = await startServer();
        if (end.stall === undefined) throw new Error("The server cannot stall.");
        await end.sink.open(neverAborted());
        await end.stall();
        const abort = new AbortController();
        const write = end.sink.write([valueEvent(1)], abort.signal);
        const timer = setTimeout(() => abort.abort(new Error("stop")), 100);
        const ticks = await ticksUntil(expect(write).rejects.toThrow());
        clearTimeout(timer);
        expect(ticks).toBeLessThan(PROMPT_TICKS);
      });
    }
  });
}

function neverAborted(): AbortSignal {
  return new AbortController().signal;
}

/** Offers a batch as the engine does; returns the ids of rejected events. Gives up after fifty failures. */
async function offerBatch(sink: Sink, events: readonly Event[]): Promise<readonly string[]> {
  const rejectedIds: string[] = [];
  let nextIndex = 0;
  let failures = 0;
  while (nextIndex < events.length) {
    const batch = events.slice(nextIndex, nextIndex + (sink.maxBatch ?? 100));
    try {
      if (failures > 0) await sink.open(neverAborted());
      const receipt = await sink.write(batch, neverAborted());
      checkReceipt(receipt, batch.length);
      rejectedIds.push(...receipt.rejected.map(({ index }) => batch[index]?.id ?? ""));
      nextIndex += receipt.retry?.from ?? batch.length;
      if (receipt.retry !== undefined) throw receipt.retry.error;
    } catch (error) {
      failures += 1;
      if (failures > 50) throw error;
      await systemClock.sleep(20 * failures);
    }
  }
  return rejectedIds;
}

async function writeAndListStored(sink: Sink, batch: readonly Event[]): Promise<readonly Event[]> {
  try {
    const receipt = await sink.write(batch, AbortSignal.timeout(60_000));
    checkReceipt(receipt, batch.length);
    return receipt.retry === undefined ? [] : batch.slice(receipt.retry.from);
  } catch (error) {
    expect(error).toBeInstanceOf(Error);
    return batch;
  }
}

function checkReceipt(receipt: Receipt, length: number): void {
  const end = receipt.retry?.from ?? length;
  if (receipt.retry !== undefined) {
    expect(receipt.retry.from).toBeGreaterThanOrEqual(0);
    expect(receipt.retry.from).toBeLessThan(length);
  }
  const indices = receipt.rejected.map(({ index }) => index);
  expect(new Set(indices).size).toBe(indices.length);
  for (const { index, reason } of receipt.rejected) {
    expect(Number.isInteger(index) && index >= 0 && index < end, `index ${index} within 0…${end}`).toBe(true);
    expect(reason).not.toBe("");
  }
}

/** An alarm with `text` in every free text. */
function awkward(text: string, n: number): Event<"alarm-raised"> {
  const sample = sampleEvent("alarm-raised", {}, n);
  const { alarm } = sample.data;
  const id = String(600_000 + n);
  return {
    ...sample,
    subject: `site/1/alarm/${id}`,
    priority: n % 2 === 0 ? "A" : text,
    data: {
      ...sample.data,
      behindGateway: text,
      alarm: {
        ...alarm,
        id,
        source: text,
        description: text,
        acknowledgedBy: text,
        acknowledgedMessage: text,
        trigger: { ...alarm.trigger, displayName: text, description: text, priority: text },
        site: { ...alarm.site, displayName: `${text}${TAG.displayName}` },
      },
    },
  };
}
