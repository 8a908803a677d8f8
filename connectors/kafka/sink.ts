import { createHash } from "node:crypto";
import { type BatchInfo, buildReceipt, type ConnectorContext, type Sink } from "../../src/core/connector.ts";
import { ConfigError, Retryable } from "../../src/core/errors/errors.ts";
import type { Event } from "../../src/core/model/event.ts";
import { createBrokerConnections } from "./broker-connections.ts";
import { mapTopicError } from "./broker-failures.ts";
import { createKafkaCluster, type TopicMetadata } from "./cluster-metadata.ts";
import type { KafkaConfig } from "./config.ts";
import { buildKafkaRecord, type KafkaRecord } from "./event-records.ts";
import { createKafkaProducer, type RecordOutcome } from "./producer.ts";
import { createTopicTemplate } from "./topic-template.ts";

/** Creates the Kafka sink. Accepts an event when all in-sync replicas have its record (acks=all). */
export function createKafkaSink(config: KafkaConfig, context: ConnectorContext): Sink {
  const topicTemplate = createTopicTemplate(config.topic);
  const { connections, cluster, producer } = createKafkaClient(config, context);
  /** Keys of events acknowledged after an earlier event failed. The engine offers them again; the sink skips them. */
  let keysToSkip = new Set<string>();

  async function deliverBatch(batch: readonly Event[], batchInfo: BatchInfo | undefined) {
    const deliveryKeys = batch.map(({ id }, n) => `${batchInfo?.positions[n] ?? ""} ${id}`);
    const wasAcknowledged = (n: number) => batchInfo?.isRedelivery !== true && keysToSkip.has(deliveryKeys[n] ?? "");
    const records = batch.map((event, n) =>
      buildKafkaRecord(event, topicTemplate.buildTopic(event), batchInfo?.sequences?.[n]),
    );
    const outcomes = records.map(
      (record, n): RecordOutcome => (wasAcknowledged(n) ? { is: "acknowledged" } : checkRecordTimeAndSize(record)),
    );
    const unsentRecordIndexes = outcomes.flatMap(({ is }, n) => (is === "open" ? [n] : []));
    if (unsentRecordIndexes.length > 0) {
      const sendOutcomes = await producer.send(unsentRecordIndexes.map((n) => records[n] as KafkaRecord));
      for (const [outcomeIndex, recordIndex] of unsentRecordIndexes.entries())
        outcomes[recordIndex] = sendOutcomes[outcomeIndex] ?? { is: "open" };
    }
    const receipt = summarizeOutcomes(outcomes);
    const retryFromIndex = receipt.retry?.from ?? batch.length;
    const hasCaughtUp = receipt.retry === undefined && !deliveryKeys.some((key) => keysToSkip.has(key));
    keysToSkip = hasCaughtUp ? new Set() : keysToSkip;
    for (const [n, key] of deliveryKeys.entries()) {
      if (n >= retryFromIndex && outcomes[n]?.is === "acknowledged") keysToSkip.add(key);
      else keysToSkip.delete(key);
    }
    if (receipt.retry?.from === 0) throw receipt.retry.error;
    return receipt;
  }

  function checkRecordTimeAndSize({ bytes, timestampMs }: KafkaRecord): RecordOutcome {
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
      const probeClient = createKafkaClient(config, context);
      try {
        await probeClient.connections.runWithSignal(signal, async () => {
          await probeClient.producer.prepare();
          checkTopicPermissions(await probeClient.cluster.describeTopics(topicTemplate.possibleTopics));
        });
      } finally {
        probeClient.connections.end();
      }
    },
  };

  /** Throws if Plenum may write to none of the topics and cannot create any. */
  function checkTopicPermissions(visibleTopics: readonly TopicMetadata[]): void {
    const matchingTopics = visibleTopics.filter(({ name }) => topicTemplate.matchesTopic(name));
    const existingTopics = matchingTopics.filter(({ code }) => code === 0);
    if (existingTopics.some(({ mayWrite }) => mayWrite !== false)) {
      const missingTopics = matchingTopics.flatMap(({ name, code }) => (code === 0 ? [] : [name]));
      if (missingTopics.length > 0) context.log.info({ missing: missingTopics }, "topics that are not there");
      return;
    }
    const forbiddenTopic = existingTopics[0] ?? matchingTopics.find(({ code }) => code === TOPIC_FORBIDDEN_ERROR_CODE);
    if (forbiddenTopic !== undefined) throw mapTopicError(TOPIC_FORBIDDEN_ERROR_CODE, forbiddenTopic.name);
    if (config.create_topics) return;
    const hint = "Create them, or set create_topics: true where the brokers create topics by themselves.";
    throw new ConfigError(`No topic is there for ${config.topic}, or we may not see it.`, { hint, field: "topic" });
  }
}

function createKafkaClient(config: KafkaConfig, { clock }: ConnectorContext) {
  const connections = createBrokerConnections(config, clock);
  const cluster = createKafkaCluster(config, connections, clock);
  return { connections, cluster, producer: createKafkaProducer(config, connections, cluster) };
}

const TOPIC_FORBIDDEN_ERROR_CODE = 29;

function summarizeOutcomes(outcomes: readonly RecordOutcome[]) {
  const firstOpenIndex = outcomes.findIndex(({ is }) => is === "open");
  const reasons = outcomes.flatMap((outcome, n) => (outcome.is === "refused" ? [[n, outcome.reason] as const] : []));
  const [error] = outcomes.flatMap((outcome) => (outcome.is === "open" ? (outcome.error ?? []) : []));
  const retryError = error ?? new Retryable("The Kafka cluster did not acknowledge it.");
  return buildReceipt(new Map(reasons), firstOpenIndex < 0 ? undefined : { from: firstOpenIndex, error: retryError });
}
