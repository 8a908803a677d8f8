import { createHash } from "node:crypto";
import { ACCEPTED, type BatchInfo, type ConnectorContext, type Receipt, type Sink } from "../../src/core/connector.ts";
import { ConfigError, Retryable } from "../../src/core/errors/errors.ts";
import type { Event } from "../../src/core/model/event.ts";
import { createCluster, type TopicMetadata } from "./cluster.ts";
import type { KafkaConfig } from "./config.ts";
import { createConnections } from "./connections.ts";
import { mapTopicError } from "./failures.ts";
import { createProducer, type RecordOutcome } from "./producer.ts";
import { buildRecord, type KafkaRecord } from "./records.ts";
import { createTopics } from "./topics.ts";

/** Creates the Kafka sink. Accepts an event when all in-sync replicas have its record (acks=all). */
export function createKafkaSink(config: KafkaConfig, context: ConnectorContext): Sink {
  const topics = createTopics(config.topic);
  const { connections, cluster, producer } = createKafkaClient(config, context);
  /** Acknowledged records that will be offered again because an earlier record failed. Lost at a restart. */
  let acknowledgedAhead = new Set<string>();

  async function deliverBatch(batch: readonly Event[], offered: BatchInfo | undefined): Promise<Receipt> {
    const recordKeys = batch.map(({ id }, n) => `${offered?.positions[n] ?? ""} ${id}`);
    const isAcknowledged = (n: number) => offered?.isRedelivery !== true && acknowledgedAhead.has(recordKeys[n] ?? "");
    const records = batch.map((event, n) => buildRecord(event, topics.buildTopic(event), offered?.sequences?.[n]));
    const outcomes = records.map(
      (record, n): RecordOutcome => (isAcknowledged(n) ? { is: "acknowledged" } : checkRecord(record)),
    );
    const unsent = outcomes.flatMap(({ is }, n) => (is === "open" ? [n] : []));
    if (unsent.length > 0) {
      const sent = await producer.send(unsent.map((n) => records[n] as KafkaRecord));
      for (const [nth, n] of unsent.entries()) outcomes[n] = sent[nth] ?? { is: "open" };
    }
    const receipt = buildReceipt(outcomes);
    const from = receipt.retry?.from ?? batch.length;
    const passed = receipt.retry === undefined && !recordKeys.some((name) => acknowledgedAhead.has(name));
    acknowledgedAhead = passed ? new Set() : acknowledgedAhead;
    for (const [n, name] of recordKeys.entries()) {
      if (n >= from && outcomes[n]?.is === "acknowledged") acknowledgedAhead.add(name);
      else acknowledgedAhead.delete(name);
    }
    if (receipt.retry?.from === 0) throw receipt.retry.error;
    return receipt;
  }

  function checkRecord({ bytes, timestampMs }: KafkaRecord): RecordOutcome {
    if (Number.isNaN(timestampMs)) return { is: "refused", reason: "Its time is none." };
    if (bytes <= config.max_message_bytes) return { is: "open" };
    return { is: "refused", reason: `It takes ${bytes} bytes, and max_message_bytes is ${config.max_message_bytes}.` };
  }

  return {
    maxBatch: 1_000,
    strictOrder: true,
    serverId: createHash("sha256").update(config.brokers.toSorted().join(" ")).digest("hex"),

    open: (signal) =>
      connections.runWithSignal(signal, async () => {
        await cluster.describeTopics([]);
        await producer.prepare();
      }),

    write: (batch, signal, _accepted, offered) => connections.runWithSignal(signal, () => deliverBatch(batch, offered)),

    async close() {
      connections.end();
    },

    async probe(signal) {
      const probing = createKafkaClient(config, context);
      try {
        await probing.connections.runWithSignal(signal, async () => {
          await probing.producer.prepare();
          checkTopics(await probing.cluster.describeTopics(topics.possibleTopics));
        });
      } finally {
        probing.connections.end();
      }
    },
  };

  /** Throws if Plenum may write to none of the topics and cannot create any. */
  function checkTopics(described: readonly TopicMetadata[]): void {
    const ours = described.filter(({ name }) => topics.matches(name));
    const existing = ours.filter(({ code }) => code === 0);
    if (existing.some(({ mayWrite }) => mayWrite !== false)) {
      const missing = ours.flatMap(({ name, code }) => (code === 0 ? [] : [name]));
      if (missing.length > 0) context.log.info({ missing }, "topics that are not there");
      return;
    }
    const forbidden = existing[0] ?? ours.find(({ code }) => code === TOPIC_AUTHORIZATION_FAILED);
    if (forbidden !== undefined) throw mapTopicError(TOPIC_AUTHORIZATION_FAILED, forbidden.name);
    if (config.create_topics) return;
    const hint = "Create them, or set create_topics: true where the brokers create topics by themselves.";
    throw new ConfigError(`No topic is there for ${config.topic}, or we may not see it.`, { hint, field: "topic" });
  }
}

function createKafkaClient(config: KafkaConfig, { clock }: ConnectorContext) {
  const connections = createConnections(config, clock);
  const cluster = createCluster(config, connections, clock);
  return { connections, cluster, producer: createProducer(config, connections, cluster) };
}

const TOPIC_AUTHORIZATION_FAILED = 29;

function buildReceipt(outcomes: readonly RecordOutcome[]): Receipt {
  const first = outcomes.findIndex(({ is }) => is === "open");
  const from = first < 0 ? outcomes.length : first;
  const rejected = outcomes
    .slice(0, from)
    .flatMap((outcome, index) => (outcome.is === "refused" ? [{ index, reason: outcome.reason }] : []));
  if (first < 0) return rejected.length === 0 ? ACCEPTED : { rejected };
  const [error] = outcomes.flatMap((outcome) => (outcome.is === "open" ? (outcome.error ?? []) : []));
  return { rejected, retry: { from, error: error ?? new Retryable("The Kafka cluster did not acknowledge it.") } };
}
