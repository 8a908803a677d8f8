import { createHash } from "node:crypto";
import { type BatchInfo, buildReceipt, type ConnectorContext, type Sink } from "../../src/core/connector.ts";
import { ConfigError, Retryable } from "../../src/core/errors/errors.ts";
import type { Event } from "../../src/core/model/event.ts";
import { createConnections } from "./broker-connections.ts";
import { mapTopicError } from "./broker-failures.ts";
import { createCluster, type TopicMetadata } from "./cluster-metadata.ts";
import type { KafkaConfig } from "./config.ts";
import { buildRecord, type KafkaRecord } from "./event-records.ts";
import { createProducer, type RecordOutcome } from "./producer.ts";
import { createTopics } from "./topic-template.ts";

/** Creates the Kafka sink. Accepts an event when all in-sync replicas have its record (acks=all). */
export function createKafkaSink(config: KafkaConfig, context: ConnectorContext): Sink {
  const topics = createTopics(config.topic);
  const { connections, cluster, producer } = createKafkaClient(config, context);
  /** Acknowledged records that will be offered again because an earlier record failed. Lost at a restart. */
  let acknowledgedAhead = new Set<string>();

  async function deliverBatch(batch: readonly Event[], offered: BatchInfo | undefined) {
    const recordKeys = batch.map(({ id }, n) => `${offered?.positions[n] ?? ""} ${id}`);
    const isAcknowledged = (n: number) => offered?.isRedelivery !== true && acknowledgedAhead.has(recordKeys[n] ?? "");
    const records = batch.map((event, n) => buildRecord(event, topics.buildTopic(event), offered?.sequences?.[n]));
    const outcomes = records.map(
      (record, n): RecordOutcome => (isAcknowledged(n) ? { is: "acknowledged" } : checkRecord(record)),
    );
    const unsentIndexes = outcomes.flatMap(({ is }, n) => (is === "open" ? [n] : []));
    if (unsentIndexes.length > 0) {
      const sendOutcomes = await producer.send(unsentIndexes.map((n) => records[n] as KafkaRecord));
      for (const [nth, n] of unsentIndexes.entries()) outcomes[n] = sendOutcomes[nth] ?? { is: "open" };
    }
    const receipt = summarizeOutcomes(outcomes);
    const retryFrom = receipt.retry?.from ?? batch.length;
    const hasCaughtUp = receipt.retry === undefined && !recordKeys.some((name) => acknowledgedAhead.has(name));
    acknowledgedAhead = hasCaughtUp ? new Set() : acknowledgedAhead;
    for (const [n, name] of recordKeys.entries()) {
      if (n >= retryFrom && outcomes[n]?.is === "acknowledged") acknowledgedAhead.add(name);
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
    const matchingTopics = described.filter(({ name }) => topics.matches(name));
    const existingTopics = matchingTopics.filter(({ code }) => code === 0);
    if (existingTopics.some(({ mayWrite }) => mayWrite !== false)) {
      const missingTopics = matchingTopics.flatMap(({ name, code }) => (code === 0 ? [] : [name]));
      if (missingTopics.length > 0) context.log.info({ missing: missingTopics }, "topics that are not there");
      return;
    }
    const forbiddenTopic = existingTopics[0] ?? matchingTopics.find(({ code }) => code === TOPIC_AUTHORIZATION_FAILED);
    if (forbiddenTopic !== undefined) throw mapTopicError(TOPIC_AUTHORIZATION_FAILED, forbiddenTopic.name);
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

function summarizeOutcomes(outcomes: readonly RecordOutcome[]) {
  const firstOpenIndex = outcomes.findIndex(({ is }) => is === "open");
  const reasons = outcomes.flatMap((outcome, n) => (outcome.is === "refused" ? [[n, outcome.reason] as const] : []));
  const [error] = outcomes.flatMap((outcome) => (outcome.is === "open" ? (outcome.error ?? []) : []));
  const retryError = error ?? new Retryable("The Kafka cluster did not acknowledge it.");
  return buildReceipt(new Map(reasons), firstOpenIndex < 0 ? undefined : { from: firstOpenIndex, error: retryError });
}
