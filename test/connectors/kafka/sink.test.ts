import { connect, createServer } from "node:net";
import { createServer as createTlsServer } from "node:tls";
import { describe, expect, test } from "vitest";
import { KafkaConfig } from "#connectors/kafka/config.ts";
import { buildKafkaRecord } from "#connectors/kafka/event-records.ts";
import { createKafkaSink } from "#connectors/kafka/sink.ts";
import type { Event } from "#src/core/model/event.ts";
import type { Clock } from "#src/core/runtime/clock.ts";
import { catchFailure, expectFailure } from "../../receivers/receiver-helpers.ts";
import { sampleEvent, valueEvent } from "../../sample-events.ts";
import { describeSink } from "../../suites/sink-suite.ts";
import { closeAfterTest } from "../../test-resources.ts";
import { certificateFor } from "../certificate.ts";
import { contextFor, never, offered, offerWith } from "../context.ts";
import { listenTo } from "../stub-server.ts";
import { cloudEventOf } from "./cloud-event.ts";
import { type Script, type ScriptedCluster, startScriptedCluster } from "./scripted-cluster.ts";

const createConfig = ({ brokers }: ScriptedCluster, options: object = {}) => {
  const deadlines = { connect_deadline: "2s", publish_deadline: "2s" };
  return KafkaConfig.parse({ brokers: brokers.slice(0, 1), tls: { enabled: false }, ...deadlines, ...options });
};

async function setUp(script: Script = {}, options: object = {}, clock?: Clock) {
  const cluster = closeAfterTest(await startScriptedCluster(script));
  const sink = closeAfterTest(createKafkaSink(createConfig(cluster, options), contextFor("lake", clock)));
  return { cluster, sink };
}

const tookNothing = (code: string) => ({
  kind: "retryable",
  message: `Topic plenum.tag took nothing at the moment (${code}).`,
});

const storedIds = (cluster: ScriptedCluster) => cluster.stored.map(({ headers }) => headers.ce_id);
const values = (count: number, tag?: string) => Array.from({ length: count }, (_, n) => valueEvent(n, tag));

describeSink("kafka", {
  async make() {
    let isSilent = false;
    const cluster = await startScriptedCluster({ brokers: 2, produce: () => (isSilent ? "silence" : 0) });
    return {
      sink: createKafkaSink(createConfig(cluster), contextFor("lake")),
      received: async () =>
        cluster.stored.map(({ headers, value }) => {
          const event = cloudEventOf(headers, value);
          return { identity: event.id, event };
        }),
      async breakServer() {
        await cluster.away(0);
        await cluster.away(1);
      },
      async repairServer() {
        await cluster.back(0);
        await cluster.back(1);
      },
      async stall() {
        isSilent = true;
      },
      dispose: () => cluster.close(),
    };
  },
});

describe("a Kafka record", () => {
  test("is a CloudEvent in binary mode with the event's time, and its key preserves the order of events", async () => {
    const { cluster, sink } = await setUp();
    const alarm: Event = { ...sampleEvent("alarm-raised"), snapshot: true };
    await sink.write([alarm], never());
    const [record] = cluster.stored;
    expect(record?.headers).toEqual({
      ce_specversion: "1.0",
      ce_id: alarm.id,
      ce_source: "/sources/main",
      ce_type: "alarm-raised",
      ce_subject: "site/1/alarm/500001",
      ce_time: alarm.time,
      ce_siteid: "1",
      ce_priority: alarm.priority,
      ce_snapshot: "true",
      "content-type": "application/json",
    });
    expect(record).toMatchObject({
      topic: "plenum.alarm",
      key: "/sources/main site/1/alarm/500001",
      timestampMs: Date.parse(alarm.time),
      value: JSON.stringify(alarm.data),
    });
  });

  test("has headers with the sequence number of its event, if the event has a number", async () => {
    const { cluster, sink } = await setUp();
    const sequences = [{ epoch: "0123456789abcdef", number: 4_711 }, null];
    await sink.write(values(2), never(), undefined, offerWith(sequences));
    const [numbered, other] = cluster.stored;
    expect(numbered?.headers).toMatchObject({ ce_sequence: "0000000000004711", ce_sequenceepoch: "0123456789abcdef" });
    expect(other?.headers).not.toHaveProperty("ce_sequence");
  });

  test("goes to the same partition that the Java clients choose for its key", async () => {
    const { cluster, sink } = await setUp({ topics: 7 });
    const batch = ["1", "2", "3", "4", "5"].flatMap((tag) => values(3, tag));
    await sink.write(batch, never());
    const partitions = new Map(cluster.stored.map(({ key, partition }) => [key, partition]));
    expect(cluster.stored.every(({ key, partition }) => partitions.get(key) === partition)).toBe(true);
    expect(Object.fromEntries(partitions)).toEqual(JAVA_PARTITIONS);
  });
});

describe("the receipt of a write to Kafka", () => {
  test("settles acknowledged records, so a retry sends only the rest; a new write of the batch sends all", async () => {
    let isBrokerAway = true;
    const { cluster, sink } = await setUp({
      brokers: 2,
      topics: 2,
      produce: ({ broker }) => (broker === 1 && isBrokerAway ? 19 : 0),
    });
    await sink.open(never());
    const batch = Array.from({ length: 20 }, (_, n) => valueEvent(n, String(n)));
    const receipt = await sink
      .write(batch, never(), undefined, offered(batch))
      .catch((error: unknown) => ({ rejected: [], retry: { from: 0, error } }));
    const storedBefore = storedIds(cluster);
    expect(storedBefore.length).toBeGreaterThan(0);
    expect(storedBefore.length).toBeLessThan(20);
    const retryFrom = receipt.retry?.from ?? 20;
    expect(batch.slice(0, retryFrom).every(({ id }) => storedBefore.includes(id))).toBe(true);
    expect(storedBefore).not.toContain(batch[retryFrom]?.id);
    const hint: unknown = expect.stringContaining("min.insync.replicas");
    expect(receipt.retry?.error).toMatchObject({ ...tookNothing("NOT_ENOUGH_REPLICAS"), hint });
    isBrokerAway = false;
    const rest = batch.slice(retryFrom);
    expect(await sink.write(rest, never(), undefined, offered(rest, retryFrom + 1))).toEqual({ rejected: [] });
    expect(storedIds(cluster)).toHaveLength(20);
    expect(new Set(storedIds(cluster))).toEqual(new Set(batch.map(({ id }) => id)));
    await sink.write(batch, never(), undefined, offered(batch));
    expect(storedIds(cluster)).toHaveLength(40);
    await sink.write(batch, never(), undefined, { ...offered(batch), isRedelivery: true });
    expect(storedIds(cluster)).toHaveLength(60);
  });

  test("leaves events from the first event with a missing topic on for a retry, and sends no later event", async () => {
    const { cluster, sink } = await setUp({ topics: { "plenum.tag": 1 } });
    const batch = [valueEvent(1), sampleEvent("alarm-raised"), valueEvent(2)];
    const receipt = await sink.write(batch, never());
    expect(receipt).toMatchObject({ rejected: [], retry: { from: 1 } });
    expect(receipt.retry?.error).toMatchObject({
      kind: "config",
      message: "Topic plenum.alarm does not exist (UNKNOWN_TOPIC_OR_PARTITION).",
      hint: expect.stringContaining("create_topics") as string,
    });
    expect(storedIds(cluster)).toEqual([valueEvent(1).id]);
  });

  test("a topic without write permission causes a ConfigError", async () => {
    const { cluster, sink } = await setUp({ produce: () => 29 });
    const message = "Topic plenum.tag may not be written by us, or does not exist (TOPIC_AUTHORIZATION_FAILED).";
    await expectFailure(sink.write([valueEvent(1)], never()), { kind: "config", reason: "forbidden", message });
    expect(cluster.stored).toEqual([]);
  });

  test("rejects one oversized record of hundreds and stores the other records in order", async () => {
    const batch = values(300).map((event, n) =>
      n === 123 ? { ...event, data: { ...event.data, behindGateway: "x".repeat(4_000) } } : event,
    );
    const { cluster, sink } = await setUp({
      topics: 1,
      produce: ({ records }) => (records.some(({ value }) => value.length > 4_000) ? 10 : 0),
    });
    const { rejected, retry } = await sink.write(batch, never());
    expect(retry).toBeUndefined();
    const reason =
      "Topic plenum.tag: it is larger than the topic takes (max.message.bytes). The broker says MESSAGE_TOO_LARGE.";
    expect(rejected).toEqual([{ index: 123, reason }]);
    expect(storedIds(cluster)).toEqual(batch.filter((_, n) => n !== 123).map(({ id }) => id));
    expect(cluster.batches.length).toBeLessThan(25);
  });

  test.each([
    [32, "the topic does not take its time (message.timestamp.before.max.ms, …after.max.ms)", "INVALID_TIMESTAMP"],
    [87, "the topic does not take such a record", "INVALID_RECORD"],
  ])("error code %i rejects one record, and the records after it are stored", async (code, why, name) => {
    const batch = values(3);
    const { cluster, sink } = await setUp({
      topics: 1,
      produce: ({ records }) => (records.some(({ headers }) => headers.ce_id === batch[1]?.id) ? code : 0),
    });
    expect(await sink.write(batch, never())).toEqual({
      rejected: [{ index: 1, reason: `Topic plenum.tag: ${why}. The broker says ${name}.` }],
    });
    expect(storedIds(cluster)).toEqual([batch[0]?.id, batch[2]?.id]);
  });

  test("rejects a record above max_message_bytes without sending it, and limits batches to the same size", async () => {
    const { cluster, sink } = await setUp({ topics: 1 }, { max_message_bytes: 2_048 });
    const largeEvent = { ...valueEvent(7), data: { ...valueEvent(7).data, behindGateway: "x".repeat(2_000) } };
    const { rejected } = await sink.write([...values(7), largeEvent, valueEvent(8)], never());
    expect(rejected).toMatchObject([{ index: 7, reason: expect.stringContaining("max_message_bytes is 2048") }]);
    expect(storedIds(cluster)).toEqual([...values(7), valueEvent(8)].map(({ id }) => id));
    const batchSizes = cluster.batches.map(({ records }) => JSON.stringify(records).length);
    expect(cluster.batches.length).toBeGreaterThan(2);
    expect(Math.max(...batchSizes)).toBeLessThan(3_000);
  });
});

describe("a batch of Kafka records", () => {
  const countRecordBytes = (events: readonly Event[]) =>
    events.reduce((sum, event) => sum + buildKafkaRecord(event, "plenum.tag").bytes, 0);

  test("contains records up to exactly max_message_bytes", async () => {
    const events = values(4);
    for (const [spare, batches] of [
      [0, 1],
      [-1, 2],
    ] as const) {
      const limit = { max_message_bytes: countRecordBytes(events) + spare };
      const { cluster, sink } = await setUp({ topics: 1 }, limit);
      await sink.write(events, never());
      expect(cluster.batches).toHaveLength(batches);
    }
  });

  test("accepts one record of exactly max_message_bytes, and rejects a record that is one byte larger", async () => {
    const largeEvent = { ...valueEvent(7), data: { ...valueEvent(7).data, behindGateway: "x".repeat(1_000) } };
    for (const [spare, rejected] of [
      [0, []],
      [-1, [expect.objectContaining({ index: 0 })]],
    ] as const) {
      const { sink } = await setUp({ topics: 1 }, { max_message_bytes: countRecordBytes([largeEvent]) + spare });
      expect((await sink.write([largeEvent], never())).rejected).toEqual(rejected);
    }
  });
});

describe("the leader of a Kafka partition", () => {
  test("is requested again by the next write when it was missing, and no event was settled without it", async () => {
    let isMissing = true;
    const { cluster, sink } = await setUp({ topics: 1, leaderless: () => isMissing });
    await expectFailure(sink.write([valueEvent(1)], never()), tookNothing("LEADER_NOT_AVAILABLE"));
    isMissing = false;
    await sink.write([valueEvent(1)], never());
    expect(storedIds(cluster)).toEqual([valueEvent(1).id]);
  });

  test("is requested again by the next write after the leader moved to another broker", async () => {
    const errorCodes = [6];
    const { cluster, sink } = await setUp({ topics: 1, produce: () => errorCodes.shift() ?? 0 });
    await expectFailure(sink.write([valueEvent(1)], never()), tookNothing("NOT_LEADER_OR_FOLLOWER"));
    await sink.write([valueEvent(1)], never());
    expect(cluster.asked.filter((name) => name === "Metadata")).toHaveLength(2);
    expect(storedIds(cluster)).toEqual([valueEvent(1).id]);
  });
});

describe("the idempotent Kafka producer", () => {
  test("numbers the records of each partition without a gap", async () => {
    const { cluster, sink } = await setUp({ topics: 1 });
    await sink.write(values(3), never());
    await sink.write(values(2), never());
    await sink.write(values(1), never());
    expect(cluster.batches.map(({ epoch, sequence }) => [epoch, sequence])).toEqual([
      [0, 0],
      [0, 3],
      [0, 5],
    ]);
    expect(new Set(cluster.batches.map(({ producerId }) => producerId))).toEqual(new Set([4_001n]));
  });

  test("continues in a later producer epoch after a lost response, so that brokers refuse the late batch", async () => {
    let isResponseLost = true;
    const { cluster, sink } = await setUp({ topics: 1, produce: () => (isResponseLost ? "late" : 0) });
    await sink.open(never());
    await expect(sink.write([valueEvent(1)], never())).rejects.toMatchObject({ kind: "retryable" });
    isResponseLost = false;
    await sink.open(never());
    expect(await sink.write([valueEvent(1), valueEvent(2)], never())).toEqual({ rejected: [] });
    expect(cluster.batches.map(({ producerId, epoch, sequence }) => [producerId, epoch, sequence])).toEqual([
      [4_001n, 0, 0],
      [4_001n, 1, 0],
    ]);
    expect(storedIds(cluster)).toEqual([1, 1, 2].map((n) => valueEvent(n).id));
  });

  test.each([
    [32_766, [4_001n, 32_767]],
    [32_767, [4_002n, 32_767]],
  ])("requests a new producer id after a timeout at epoch %i if no later epoch exists", async (epoch, expected) => {
    const errorCodes = [7];
    const { cluster, sink } = await setUp({ topics: 1, epoch, produce: () => errorCodes.shift() ?? 0 });
    await expect(sink.write([valueEvent(1)], never())).rejects.toMatchObject({ kind: "retryable" });
    await sink.write([valueEvent(1)], never());
    const lastBatch = cluster.batches.at(-1);
    expect([lastBatch?.producerId, lastBatch?.epoch]).toEqual(expected);
  });

  test("requests a new producer id when the brokers lost the current one", async () => {
    let errorCodes = [0, 45];
    const { cluster, sink } = await setUp({ topics: 1, produce: () => errorCodes.shift() ?? 0 });
    await sink.write([valueEvent(1)], never());
    await expect(sink.write([valueEvent(2)], never())).rejects.toMatchObject({ kind: "retryable" });
    errorCodes = [];
    await sink.write([valueEvent(2)], never());
    expect(cluster.batches.map(({ producerId, epoch, sequence }) => [producerId, epoch, sequence])).toEqual([
      [4_001n, 0, 0],
      [4_001n, 0, 1],
      [4_002n, 0, 0],
    ]);
  });

  test("requests no producer id with idempotent: false, which the error for a missing permission suggests", async () => {
    const withoutProducerId = await setUp({}, { idempotent: false });
    await withoutProducerId.sink.write([valueEvent(1)], never());
    expect(withoutProducerId.cluster.asked).not.toContain("InitProducerId");
    expect(withoutProducerId.cluster.batches[0]?.producerId).toBe(-1n);
    const { sink } = await setUp({ producerId: () => 31 });
    const hint = /IdempotentWrite on the cluster; or set idempotent: false\.$/;
    await expectFailure(sink.open(never()), { kind: "config", reason: "forbidden", hint });
  });
});

describe("requests to Kafka brokers", () => {
  test("the client library makes one attempt per write, without its own retries", async () => {
    const { cluster, sink } = await setUp({ produce: () => "cut" });
    const message = /^The Kafka broker at 127\.0\.0\.1:\d+ broke the connection\.$/;
    await expectFailure(sink.write([valueEvent(1)], never()), { kind: "retryable", message });
    expect(cluster.batches).toHaveLength(1);
  });

  test("no further batch of a write is sent after a failure", async () => {
    const { cluster, sink } = await setUp({ topics: 1, produce: () => 7 }, { max_message_bytes: 2_048 });
    await expect(sink.write(values(50), never())).rejects.toMatchObject({ kind: "retryable" });
    expect(cluster.batches).toHaveLength(1);
  });

  test("the connection stays open when the signal aborts after the write has ended", async () => {
    const { cluster, sink } = await setUp();
    const stop = new AbortController();
    await sink.write([valueEvent(1)], stop.signal);
    stop.abort();
    await sink.write([valueEvent(2)], never());
    expect(cluster.asked.filter((name) => name === "ApiVersions").length).toBeLessThanOrEqual(2);
    expect(storedIds(cluster)).toHaveLength(2);
  });

  test("topic metadata is requested once, and not for each batch", async () => {
    const { cluster, sink } = await setUp();
    for (let n = 0; n < 5; n++) await sink.write([valueEvent(n)], never());
    expect(cluster.asked.filter((name) => name === "Metadata")).toHaveLength(1);
  });

  test("an event is left for a retry when the broker does not respond in time", async () => {
    const { sink } = await setUp({ produce: () => "silence" }, { publish_deadline: "100ms" });
    const message = /gave no answer in time/;
    await expectFailure(sink.write([valueEvent(1)], never()), { kind: "retryable", message });
  });
});

describe("a missing Kafka topic", () => {
  test("causes a retryable error for 20 s and then a ConfigError, also when the topic existed before", async () => {
    let nowMs = 0;
    let isThere = false;
    const clock = { now: () => 0, monotonic: () => nowMs, sleep: async () => undefined };
    const script = { topics: 1, topic: () => (isThere ? 0 : 3) };
    const { sink } = await setUp(script, { create_topics: true }, clock);
    await expectFailure(sink.write([valueEvent(1)], never()), { kind: "retryable" });
    isThere = true;
    nowMs = 10_000;
    await sink.write([valueEvent(1)], never());
    isThere = false;
    for (const [atMs, kind] of [
      [310_000, "retryable"],
      [329_999, "retryable"],
      [330_000, "config"],
    ] as const) {
      nowMs = atMs;
      await expectFailure(sink.write([valueEvent(2)], never()), { kind });
    }
  });

  test("the probe reports a missing topic or write permission without sending a record", async () => {
    const withTopic = await setUp({ topics: { "plenum.tag": 1 } });
    await withTopic.sink.probe?.(never());
    expect(withTopic.cluster.batches).toEqual([]);
    const withoutTopic = await setUp({ topics: { other: 1 } });
    const message = "No topic is there for plenum.{noun}, or we may not see it.";
    await expectFailure(withoutTopic.sink.probe?.(never()), { kind: "config", field: "topic", message });
    const created = await setUp({ topics: {} }, { create_topics: true });
    await created.sink.probe?.(never());
    const bySite = await setUp({ topics: { "a.main.7": 1, b: 1 } }, { topic: "a.{source}.{site}" });
    await bySite.sink.probe?.(never());
    const noSite = await setUp({ topics: { "a.main": 1, b: 1 } }, { topic: "a.{source}.{site}" });
    await expectFailure(noSite.sink.probe?.(never()), { kind: "config" });
  });
});

test.each([
  ["accepts the connection and never responds", false, / gave no answer in time\.$/],
  ["closes the connection at once", true, / broke the connection\.$/],
])(
  "opening the sink fails with a retryable error when the server does not speak Kafka's protocol and %s",
  async (_, hangsUp, message) => {
    const server = createServer((socket) => {
      socket.on("error", () => undefined);
      if (hangsUp) socket.destroy();
    });
    const deadlines = { connect_deadline: "200ms", publish_deadline: "100ms" };
    const config = { brokers: [await listenTo(server)], tls: { enabled: false }, ...deadlines };
    const sink = closeAfterTest(createKafkaSink(KafkaConfig.parse(config), contextFor("lake")));
    await expectFailure(sink.open(never()), { kind: "retryable", message });
  },
);

function sasl(mechanism: string) {
  process.env.KAFKA_TEST_PASSWORD = "correct horse";
  return { sasl: { mechanism, username: "plenum", password: { env: "KAFKA_TEST_PASSWORD" } } };
}

const refusePassword = (mechanism: string): Script => ({ sasl: { mechanism, reply: () => "refused" } });
const acceptPlain = { sasl: { mechanism: "PLAIN", reply: () => Buffer.alloc(0) } };

describe("authentication at Kafka brokers", () => {
  test("accepts PLAIN, and a wrong password is a ConfigError that does not contain the password", async () => {
    const well = await setUp(acceptPlain, sasl("PLAIN"));
    expect(await well.sink.write([valueEvent(1)], never())).toEqual({ rejected: [] });
    const { sink } = await setUp(refusePassword("PLAIN"), sasl("PLAIN"));
    const error = await catchFailure(sink.open(never()));
    expect(error).toMatchObject({
      kind: "config",
      reason: "unauthenticated",
      message: expect.stringContaining("does not accept the user name or password") as string,
    });
    expect(JSON.stringify(error)).not.toContain("correct horse");
  });

  test("has separate error messages for a wrong mechanism, an unnecessary and a missing password", async () => {
    const scram = await setUp(refusePassword("PLAIN"), sasl("SCRAM-SHA-256"));
    await expectFailure(scram.sink.open(never()), { kind: "config", field: "sasl.mechanism" });
    const unwanted = await setUp({}, sasl("PLAIN"));
    const refusal = /does not ask for a password at this port/;
    await expectFailure(unwanted.sink.open(never()), { kind: "config", message: refusal });
    const missingPassword = await setUp(refusePassword("SCRAM-SHA-512"));
    const message = /wants a password \(SCRAM-SHA-512\)/;
    await expectFailure(missingPassword.sink.open(never()), { kind: "config", reason: "unauthenticated", message });
  });

  test("reports that a broker behind TLS requires a password when none is configured", async () => {
    const cluster = closeAfterTest(await startScriptedCluster(refusePassword("PLAIN")));
    const port = Number(cluster.brokers[0]?.split(":")[1]);
    const { path, ...certificate } = certificateFor("localhost");
    const server = createTlsServer(certificate, (socket) => {
      const broker = connect(port, "127.0.0.1");
      for (const [one, other] of [
        [socket, broker],
        [broker, socket],
      ] as const) {
        one.on("error", () => other.destroy());
        one.once("close", () => other.destroy());
        one.pipe(other);
      }
    });
    const brokers = [(await listenTo(server)).replace("127.0.0.1", "localhost")];
    const config = KafkaConfig.parse({ brokers, tls: { ca_file: path } });
    const sink = closeAfterTest(createKafkaSink(config, contextFor("lake")));
    await expectFailure(sink.open(never()), { reason: "unauthenticated", message: /wants a password \(PLAIN\)/ });
  });

  test("an invalid SCRAM response is a failed authentication, and the process continues", async () => {
    const reply = () => Buffer.from("no such thing");
    const { sink } = await setUp({ sasl: { mechanism: "SCRAM-SHA-256", reply } }, sasl("SCRAM-SHA-256"));
    await expectFailure(sink.open(never()), { kind: "config", field: "sasl" });
  });
});

test("the Kafka sink sends no plain-text password to a remote broker that a local broker announces", async () => {
  const { cluster, sink } = await setUp({ ...acceptPlain, host: "192.0.2.1" }, sasl("PLAIN"));
  const message = /^The Kafka broker at 192\.0\.2\.1:\d+ would get our password readable/;
  await expectFailure(sink.write([valueEvent(1)], never()), { kind: "config", message });
  expect(cluster.batches).toEqual([]);
});

/** `Utils.toPositive(Utils.murmur2(key)) % 7` of kafka-clients 4.1.0. */
const JAVA_PARTITIONS = {
  "/sources/main site/1/tag/1": 3,
  "/sources/main site/1/tag/2": 0,
  "/sources/main site/1/tag/3": 4,
  "/sources/main site/1/tag/4": 5,
  "/sources/main site/1/tag/5": 4,
};
