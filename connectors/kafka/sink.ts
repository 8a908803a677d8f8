import { createHash } from "node:crypto";
import { ACCEPTED, type BatchInfo, type ConnectorContext, type Receipt, type Sink } from "../../src/core/connector.ts";
import { ConfigError, Retryable } from "../../src/core/errors/errors.ts";
import type { Event } from "../../src/core/model/event.ts";
import { createCluster, type Topic } from "./cluster.ts";
import type { KafkaConfig } from "./config.ts";
import { createConnections } from "./connections.ts";
import { topicFailure } from "./outcome.ts";
import { createProducer, type RecordOutcome } from "./producer.ts";
import { type KafkaRecord, recordOf } from "./records.ts";
import { createTopics } from "./topics.ts";

/** Accepted means: all in-sync replicas have the record (acks=all). */
export function createKafkaSink(config: KafkaConfig, context: ConnectorContext): Sink {
  const topics = createTopics(config.topic);
  const { connections, cluster, producer } = createClient(config, context);
  /** Acknowledged records that are offered again after an earlier one failed. Lost at a restart. */
  let acknowledgedAhead = new Set<string>();

  async function deliver(batch: readonly Event[], offered: BatchInfo | undefined): Promise<Receipt> {
    const names = batch.map(({ id }, n) => `${offered?.positions[n] ?? ""} ${id}`);
    const isAcknowledged = (n: number) => offered?.isRedelivery !== true && acknowledgedAhead.has(names[n] ?? "");
    const records = batch.map((event, n) => recordOf(event, topics.topicOf(event), offered?.sequences?.[n]));
    const outcomes = records.map(
      (record, n): RecordOutcome => (isAcknowledged(n) ? { is: "acknowledged" } : precheck(record)),
    );
    const unsent = outcomes.flatMap(({ is }, n) => (is === "open" ? [n] : []));
    if (unsent.length > 0) {
      const sent = await producer.send(unsent.map((n) => records[n] as KafkaRecord));
      for (const [nth, n] of unsent.entries()) outcomes[n] = sent[nth] ?? { is: "open" };
    }
    const receipt = receiptOf(outcomes);
    const from = receipt.retry?.from ?? batch.length;
    const passed = receipt.retry === undefined && !names.some((name) => acknowledgedAhead.has(name));
    acknowledgedAhead = passed ? new Set() : acknowledgedAhead;
    for (const [n, name] of names.entries()) {
      if (n >= from && outcomes[n]?.is === "acknowledged") acknowledgedAhead.add(name);
      else acknowledgedAhead.delete(name);
    }
    if (receipt.retry?.from === 0) throw receipt.retry.error;
    return receipt;
  }

  function precheck({ bytes, timestampMs }: KafkaRecord): RecordOutcome {
    if (Number.isNaN(timestampMs)) return { is: "refused", reason: "Its time is none." };
    if (bytes <= config.max_message_bytes) return { is: "open" };
    return { is: "refused", reason: `It takes ${bytes} bytes, and max_message_bytes is ${config.max_message_bytes}.` };
  }

  return {
    maxBatch: 1_000,
    strictOrder: true,
    serverId: createHash("sha256").update(config.brokers.toSorted().join(" ")).digest("hex"),

    open: (signal) =>
      connections.during(signal, async () => {
        await cluster.describeTopics([]);
        await producer.prepare();
      }),

    write: (batch, signal, _accepted, offered) => connections.during(signal, () => deliver(batch, offered)),

    async close() {
      connections.end();
    },

    async probe(signal) {
      const probing = createClient(config, context);
      try {
        await probing.connections.during(signal, async () => {
          await probing.producer.prepare();
          checkTopics(await probing.cluster.describeTopics(topics.possibleTopics));
        });
      } finally {
        probing.connections.end();
      }
    },
  };

  /** Throws where we may write none of the topics and none can be created. */
  function checkTopics(described: readonly Topic[]): void {
    const ours = described.filter(({ name }) => topics.matches(name));
    const existing = ours.filter(({ code }) => code === 0);
    if (existing.some(({ mayWrite }) => mayWrite !== false)) {
      const missing = ours.flatMap(({ name, code }) => (code === 0 ? [] : [name]));
      if (missing.length > 0) context.log.info({ missing }, "topics that are not there");
      return;
    }
    const forbidden = existing[0] ?? ours.find(({ code }) => code === MAY_NOT_WRITE);
    if (forbidden !== undefined) throw topicFailure(MAY_NOT_WRITE, forbidden.name);
    if (config.create_topics) return;
    const hint = "Create them, or set create_topics: true where the brokers create topics by themselves.";
    throw new ConfigError(`No topic is there for ${config.topic}, or we may not see it.`, { hint, field: "topic" });
  }
}

function createClient(config: KafkaConfig, { clock }: ConnectorContext) {
  const connections = createConnections(config, clock);
  const cluster = createCluster(config, connections, clock);
  return { connections, cluster, producer: createProducer(config, connections, cluster) };
}

/** TOPIC_AUTHORIZATION_FAILED */
const MAY_NOT_WRITE = 29;

function receiptOf(outcomes: readonly RecordOutcome[]): Receipt {
  const first = outcomes.findIndex(({ is }) => is === "open");
  const from = first < 0 ? outcomes.length : first;
  const rejected = outcomes
    .slice(0, from)
    .flatMap((outcome, index) => (outcome.is === "refused" ? [{ index, reason: outcome.reason }] : []));
  if (first < 0) return rejected.length === 0 ? ACCEPTED : { rejected };
  const [error] = outcomes.flatMap((outcome) => (outcome.is === "open" ? (outcome.error ?? []) : []));
  return { rejected, retry: { from, error: error ?? new Retryable("The Kafka cluster did not acknowledge it.") } };
}
