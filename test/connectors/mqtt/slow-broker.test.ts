import type { Packet } from "mqtt-packet";
import { expect, test } from "vitest";
import type { Sink } from "#src/core/connector.ts";
import { openDispatcher } from "../../delivery/dispatcher-harness.ts";
import { valueEvent } from "../../sample-events.ts";
import { closeAfterTest, disposeAfterTest } from "../../test-resources.ts";
import { createVirtualClock, type VirtualClock } from "../../virtual-clock.ts";
import { contextFor, never } from "../context.ts";
import { isValue, puback, type ScriptedBroker, startScriptedBroker } from "./scripted-broker.ts";
import { createTestSink } from "./test-sink.ts";

async function setUp(clock: VirtualClock): Promise<{ broker: ScriptedBroker; sink: Sink }> {
  const broker = closeAfterTest(await startScriptedBroker(5, (packet) => (isValue(packet) ? [] : undefined)));
  return { broker, sink: createTestSink(broker.url, {}, contextFor("broker", clock)) };
}

const batch = Array.from({ length: 12 }, (_, n) => valueEvent(n));

async function values({ until }: ScriptedBroker, count: number): Promise<readonly Packet[]> {
  return (await until("publish", 1 + count)).filter(isValue);
}

async function acknowledge(
  { broker, sink }: { readonly broker: ScriptedBroker; readonly sink: Sink },
  packet: Packet,
  clock: VirtualClock,
  afterMs: number,
): Promise<void> {
  await clock.advance(afterMs);
  broker.send(puback(packet));
  await expect.poll(() => sink.progressMs?.()).toBe(clock.monotonic());
}

test("delivers each event once over one connection to a broker that needs 8 s per message", async () => {
  const harness = disposeAfterTest(await openDispatcher());
  const { clock, store } = harness;
  const far = await setUp(clock);
  const dispatcher = harness.dispatcher({ broker: far.sink }, { replay_after_restart: "0s" });
  await dispatcher.start(new AbortController().signal);
  await store.commit({ events: batch });
  await clock.advance(0);
  for (const packet of await values(far.broker, batch.length)) await acknowledge(far, packet, clock, 8_000);
  await expect.poll(() => store.outbox.lag()).toMatchObject([{ depth: 0 }]);
  expect(far.broker.came.filter(isValue)).toHaveLength(batch.length);
  expect(far.broker.came.filter(({ cmd }) => cmd === "connect")).toHaveLength(1);
  expect(dispatcher.status()).toMatchObject([{ attempts: 0, lastError: null }]);
});

test("gives up 10 s after the last acknowledgement and settles the acknowledged events", async () => {
  const clock = createVirtualClock(Date.parse("2026-11-02T06:00:00Z"));
  const far = await setUp(clock);
  await far.sink.open(never());
  let isOver = false;
  const write = far.sink.write(batch, never()).finally(() => {
    isOver = true;
  });
  const sentPackets = await values(far.broker, batch.length);
  for (const packet of sentPackets.slice(0, 3)) await acknowledge(far, packet, clock, 8_000);
  await clock.advance(9_999);
  expect(isOver).toBe(false);
  await clock.advance(1);
  const receipt = await write;
  expect(receipt).toMatchObject({ rejected: [], retry: { from: 3 } });
  expect(String(receipt.retry?.error)).toContain("did not answer within 10000 ms");
});
