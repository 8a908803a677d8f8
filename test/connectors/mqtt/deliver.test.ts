import { describe, expect, test } from "vitest";
import type { BrokerLink } from "#connectors/mqtt/broker-link.ts";
import type { MqttMessage } from "#connectors/mqtt/publish-packets.ts";
import { deliverBatch } from "#connectors/mqtt/sink.ts";
import { Rejected, Retryable } from "#src/core/errors/errors.ts";
import type { Event } from "#src/core/model/event.ts";
import { valueEvent } from "../../sample-events.ts";
import { never } from "../context.ts";

function pendingLink() {
  const replyByTopic = new Map<string, PromiseWithResolvers<void>>();
  const link: Pick<BrokerLink, "send"> = {
    send({ topic }, done) {
      const topicReply = Promise.withResolvers<void>();
      replyByTopic.set(topic, topicReply);
      topicReply.promise.then(() => done(null), done);
    },
  };
  return { link, replyTo: (n: number) => replyByTopic.get(`value/${n}`) ?? Promise.withResolvers<void>() };
}

const batch = Array.from({ length: 5 }, (_, n) => valueEvent(n));
const buildMessages = (event: Event): readonly MqttMessage[] => [
  {
    topic: `value/${batch.findIndex(({ id }) => id === event.id)}`,
    payload: "1",
    retain: true,
    contentType: "application/json",
    properties: {},
  },
];
const OPTIONS = { maxInFlight: 100, maxBytes: 1_000, signal: never(), onBestEffortRejected: () => undefined };

test.each([
  ["the later failure first", [3, 1]],
  ["the earlier failure first", [1, 3]],
  ["three failures in reverse order", [4, 3, 1]],
])("a batch is retried from its first failed event, in whichever order the failures arrive: %s", async (_, told) => {
  const { link, replyTo } = pendingLink();
  const receipt = deliverBatch(link, batch, buildMessages, OPTIONS);
  for (const n of told) replyTo(n).reject(new Retryable(`no answer to ${n}`));
  for (const n of batch.keys()) replyTo(n).resolve();
  expect(await receipt).toMatchObject({ rejected: [], retry: { from: 1, error: { message: "no answer to 1" } } });
});

test("a batch settles rejections before the first failure and leaves all later events for a retry", async () => {
  const { link, replyTo } = pendingLink();
  const receipt = deliverBatch(link, batch, buildMessages, OPTIONS);
  replyTo(3).reject(new Rejected("not allowed"));
  replyTo(0).reject(new Rejected("not allowed either"));
  replyTo(2).reject(new Retryable("no answer"));
  for (const n of batch.keys()) replyTo(n).resolve();
  expect(await receipt).toMatchObject({ rejected: [{ index: 0, reason: "not allowed either" }], retry: { from: 2 } });
});

describe("the abort of a batch to MQTT", () => {
  const suffixes = ["a", "b", "c"];
  const inParts = (event: Event): readonly MqttMessage[] =>
    buildMessages(event).flatMap((message) =>
      suffixes.map((part) => ({ ...message, topic: `${message.topic}/${part}` })),
    );

  function abortableLink(answered: (topic: string) => boolean) {
    const stop = new AbortController();
    const sentTopics: string[] = [];
    const link: Pick<BrokerLink, "send"> = {
      send({ topic }, done) {
        sentTopics.push(topic);
        if (answered(topic)) done(null);
        else stop.signal.addEventListener("abort", () => done(stop.signal.reason));
      },
    };
    return { link, sent: sentTopics, stop, options: { ...OPTIONS, signal: stop.signal } };
  }

  test("leaves events from the first unacknowledged one on for a retry and settles those before it", async () => {
    const { link, options, stop } = abortableLink((topic) => topic !== "value/2" && topic !== "value/4");
    const receipt = deliverBatch(link, batch, buildMessages, options);
    const abortReason = new Retryable("too late");
    stop.abort(abortReason);
    expect(await receipt).toEqual({ rejected: [], retry: { from: 2, error: abortReason } });
  });

  test("leaves an event for a retry and stops sending when only some of its messages are acknowledged", async () => {
    const { link, options, sent, stop } = abortableLink((topic) => topic !== "value/1/b");
    const receipt = deliverBatch(link, batch, inParts, { ...options, maxInFlight: 1 });
    stop.abort(new Retryable("too late"));
    expect(await receipt).toMatchObject({ rejected: [], retry: { from: 1 } });
    expect(sent).toEqual(["value/0/a", "value/0/b", "value/0/c", "value/1/a", "value/1/b"]);
  });

  test("stops sending when no message is in flight", async () => {
    const stop = new AbortController();
    const acknowledgeSent: (() => void)[] = [];
    const link: Pick<BrokerLink, "send"> = { send: (_, done) => void acknowledgeSent.push(() => done(null)) };
    const options = { ...OPTIONS, maxInFlight: 1, signal: stop.signal };
    const receipt = deliverBatch(link, batch, buildMessages, options);
    acknowledgeSent[0]?.();
    stop.abort(new Retryable("too late"));
    expect(await receipt).toMatchObject({ rejected: [], retry: { from: 1, error: { message: "too late" } } });
    expect(acknowledgeSent).toHaveLength(1);
  });

  test("rejects the write with the abort reason when no event is acknowledged", async () => {
    const { link, options, stop } = abortableLink((topic) => topic === "value/4");
    const receipt = deliverBatch(link, batch, buildMessages, options);
    stop.abort(new Retryable("too late"));
    await expect(receipt).rejects.toThrow("too late");
  });
});

test("the complete batch is left for a retry when the connection is already lost", async () => {
  let sendCount = 0;
  const link: Pick<BrokerLink, "send"> = {
    send(_, done) {
      sendCount += 1;
      done(new Retryable("gone"));
    },
  };
  const receipt = await deliverBatch(link, batch, buildMessages, OPTIONS);
  expect(receipt).toMatchObject({ rejected: [], retry: { from: 0, error: { message: "gone" } } });
  expect(sendCount).toBe(1);
});
