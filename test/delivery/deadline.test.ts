import { describe, expect, test } from "vitest";
import { z } from "zod";
import { RECEIVER_OPTIONS } from "#connectors/shared/receiver/config.ts";
import { createReceiverSink } from "#connectors/shared/receiver/sink.ts";
import { WebhookConfig } from "#connectors/webhook/config.ts";
import { createWebhookSink } from "#connectors/webhook/sink.ts";
import type { Receipt } from "#src/core/connector.ts";
import type { Event } from "#src/core/model/event.ts";
import { contextFor } from "../connectors/context.ts";
import { startStub } from "../connectors/stub-server.ts";
import { START, sampleAlarm } from "../receiver/receiver-harness.ts";
import { createStub } from "../receiver/receiver-stub.ts";
import { valueEvent } from "../sample-events.ts";
import { stopAfterTest } from "../test-resources.ts";
import { scriptedSink } from "./dispatcher-harness.ts";
import { commit, harness, lag, started, useHarness, values } from "./dispatcher-steps.ts";

useHarness();

/** A sink that takes its events one by one, each in `eachMs`, and hangs at event number `hangsAt`. */
function steppingSink(eachMs: number, hangsAt = Number.POSITIVE_INFINITY) {
  const { clock } = harness;
  const abortedAtMs: number[] = [];
  let steppedMs = Number.NEGATIVE_INFINITY;
  async function take(batch: readonly Event[], signal: AbortSignal): Promise<Receipt> {
    for (const from of batch.keys()) {
      steppedMs = clock.monotonic();
      try {
        await clock.sleep(from === hangsAt ? 3_600_000 : eachMs, signal);
      } catch (error) {
        abortedAtMs.push(clock.monotonic());
        return { rejected: [], retry: { from, error } };
      }
    }
    return { rejected: [] };
  }
  return Object.assign(scriptedSink(take), { abortedAtMs, progressMs: () => steppedMs });
}

describe("the deadline of a write", () => {
  test("restarts each time the sink reports progress", async () => {
    const sink = steppingSink(29_000);
    await started({ a: sink });
    await commit(values(0, 10), 10 * 29_000);
    expect((await lag()).depth).toBe(0);
    expect(sink.abortedAtMs).toEqual([]);
    expect(sink.writes).toHaveLength(1);
  });

  test("aborts a write that hangs after three events, and settles those three events", async () => {
    const sink = steppingSink(20_000, 3);
    const dispatcher = await started({ a: sink });
    await harness.store.commit({ events: values(0, 10) });
    const beganMs = harness.clock.monotonic();
    await harness.clock.advance(3 * 20_000 + 30_000);
    expect(sink.abortedAtMs.map((ms) => ms - beganMs)).toEqual([3 * 20_000 + 30_000]);
    expect((await lag()).depth).toBe(7);
    expect(dispatcher.status()).toMatchObject([
      { state: "retrying", attempts: 1, lastError: "a did not answer within 30 seconds." },
    ]);
  });

  test("ignores the progress of an earlier write", async () => {
    const sink = steppingSink(1_000);
    await started({ a: sink });
    await commit(values(0, 1), 60_000);
    let abortedAtMs = Number.NaN;
    sink.respond = (_, signal) =>
      harness.clock.sleep(3_600_000, signal).then(
        () => ({ rejected: [] }),
        (error: unknown) => {
          abortedAtMs = harness.clock.monotonic();
          throw error;
        },
      );
    const beganMs = harness.clock.monotonic();
    await commit([valueEvent(1)], 30_000);
    expect(abortedAtMs - beganMs).toBe(30_000);
  });

  test("restarts each time the tick function of a sink reports progress", async () => {
    const { clock } = harness;
    let steppedMs = Number.NEGATIVE_INFINITY;
    let ended = 0;
    const sink = Object.assign(scriptedSink(), {
      progressMs: () => steppedMs,
      async tick(signal: AbortSignal) {
        for (let step = 0; step < 4; step += 1) {
          steppedMs = clock.monotonic();
          await clock.sleep(20_000, signal);
        }
        ended += 1;
        return { tickInMs: Number.POSITIVE_INFINITY };
      },
    });
    await started({ a: sink });
    await clock.advance(4 * 20_000);
    expect(ended).toBe(1);
  });
});

function webhookTo({ url }: { readonly url: string }) {
  const config = { url: `${url}/hook`, unsigned: true, allow_networks: ["127.0.0.0/8"] };
  return createWebhookSink(WebhookConfig.parse(config), contextFor("hook", harness.clock));
}

describe("a receiver that takes 12 s for each request", () => {
  test("receives each webhook event once", async () => {
    const stub = stopAfterTest(await startStub());
    const events = values(0, 6);
    let answered = 0;
    stub.respond = (_, response) => {
      void harness.clock.advance(12_000).then(() => {
        response.writeHead(204).end();
        answered += 1;
      });
      return null;
    };
    const dispatcher = await started({ hook: webhookTo(stub) });
    await harness.store.commit({ events });
    while (answered < events.length) await harness.clock.advance(0);
    expect(stub.seen.map(({ headers }) => headers["webhook-id"])).toEqual(events.map(({ id }) => id));
    expect(dispatcher.status()).toMatchObject([{ attempts: 0, lastError: null }]);
  });

  test("receives a new alarm next, ahead of 300 waiting values", async () => {
    const stub = stopAfterTest(await startStub());
    const raised = sampleAlarm(1, { at: 0 }).raised();
    stub.respond = (_, response) => {
      void harness.clock.advance(200).then(async () => {
        if (stub.seen.length === 3) await harness.store.commit({ events: [raised] });
        response.writeHead(204).end();
      });
      return null;
    };
    const events = values(0, 300);
    await started({ hook: webhookTo(stub) });
    await harness.store.commit({ events });
    while (stub.seen.length < 6) await harness.clock.advance(0);
    const [a, b, c, d, e] = events;
    expect(stub.seen.slice(0, 6).map(({ headers }) => headers["webhook-id"])).toEqual(
      [a, b, c, raised, d, e].map((event) => event?.id),
    );
  });

  test("shows each alarm once even if the worker cannot search it for existing messages", async () => {
    const { clock, store } = harness;
    let askedMs = Number.NEGATIVE_INFINITY;
    const stub = createStub("another", { progressMs: () => askedMs });
    const slow = {
      ...stub,
      async open(...[told, signal]: Parameters<typeof stub.open>) {
        askedMs = clock.monotonic();
        // The stub carries out a request that has arrived, even if the caller stops waiting.
        const location = stub.open(told, signal);
        await clock.sleep(12_000, signal);
        return location;
      },
    };
    const config = z.strictObject(RECEIVER_OPTIONS).parse({});
    const sink = createReceiverSink(slow, config, contextFor("chat", clock, store));
    await started({ chat: sink });
    const at = (clock.now() - START) / 60_000;
    await store.commit({ events: Array.from({ length: 5 }, (_, n) => sampleAlarm(n, { at }).raised()) });
    await clock.advance(5 * 60_000);
    expect(stub.calls).toHaveLength(5);
    expect((await lag("chat")).depth).toBe(0);
  });
});
