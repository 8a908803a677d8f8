import { compatibilityPartitioner, NumericMap, ProduceAcks, type produceV11 } from "@platformatic/kafka";
import type { Failure } from "../../src/core/errors/errors.ts";
import { type BrokerConnections, listRequestVersions } from "./broker-connections.ts";
import { explainRefusal, getErrorName, mapBatchError, mapConnectionError, mapTopicError } from "./broker-failures.ts";
import {
  type KafkaCluster,
  LEADER_NOT_AVAILABLE_CODE,
  type ProducerId,
  type TopicMetadata,
} from "./cluster-metadata.ts";
import type { HostAndPort, KafkaConfig } from "./config.ts";
import type { KafkaRecord } from "./event-records.ts";

/** Result of sending a record: acknowledged by all in-sync replicas, refused permanently, or `open`: to be retried. */
export type RecordOutcome =
  | { readonly is: "acknowledged" }
  | { readonly is: "refused"; readonly reason: string }
  | { readonly is: "open"; readonly error?: Failure };

type KafkaRecordBatch = { readonly index: number; readonly record: KafkaRecord }[];

interface PartitionQueue {
  readonly topic: string;
  readonly partition: number;
  readonly leader: HostAndPort;
  readonly batches: KafkaRecordBatch[];
}

const PRODUCE_VERSIONS = listRequestVersions<typeof produceV11.api>("produce", 11, 3);

const RECORD_ACKNOWLEDGED: RecordOutcome = { is: "acknowledged" };
/** Kafka's error code UNKNOWN_SERVER_ERROR, used for a partition that is missing in the response. */
const MISSING_RESPONSE_ERROR_CODE = -1;
const MAX_PRODUCER_EPOCH = 32_767;
const MAX_SEQUENCE_NUMBER = 0x7fff_ffff;

/** Error codes for a lost or rejected producer id or sequence: request a new id, then resend. */
const ERRORS_NEEDING_NEW_PRODUCER_ID = new Set([
  "OUT_OF_ORDER_SEQUENCE_NUMBER",
  "DUPLICATE_SEQUENCE_NUMBER",
  "INVALID_PRODUCER_EPOCH",
  "UNKNOWN_PRODUCER_ID",
  "INVALID_PRODUCER_ID_MAPPING",
  "PRODUCER_FENCED",
]);

export function createKafkaProducer(config: KafkaConfig, connections: BrokerConnections, cluster: KafkaCluster) {
  let producer: ProducerId | null = null;
  const sequences = new NumericMap();

  async function ensureProducerId(): Promise<void> {
    if (config.idempotent) producer ??= await cluster.requestProducerId();
  }

  /** Begins a new epoch after a failure, so brokers refuse late batches of the old epoch. */
  function endProducerEpoch(needsNewId: boolean): void {
    cluster.clearCache();
    sequences.clear();
    if (producer === null) return;
    producer =
      needsNewId || producer.epoch >= MAX_PRODUCER_EPOCH ? null : { id: producer.id, epoch: producer.epoch + 1 };
  }

  /** Sends records in order, one request at a time per partition and none after a failure. Returns the outcomes. */
  async function sendRecords(records: readonly KafkaRecord[]): Promise<readonly RecordOutcome[]> {
    const outcomes: RecordOutcome[] = records.map(() => ({ is: "open" }));
    await ensureProducerId();
    const topicResponses = await cluster.readTopics([...new Set(records.map(({ topic }) => topic))]);
    const queues = queueRecordsByPartition(records, topicResponses, config.max_message_bytes, outcomes);
    let needsNewId = false;
    let hasFailed = false;
    while (!hasFailed) {
      const pendingQueues = queues.filter(({ batches }) => batches.length > 0);
      if (pendingQueues.length === 0) break;
      const queuesByLeader = Map.groupBy(pendingQueues, ({ leader }) => `${leader.host} ${leader.port}`);
      const batchResponses = await Promise.all([...queuesByLeader.values()].map(sendFirstBatches));
      for (const { queue, batch, code, message, error } of batchResponses.flat()) {
        const reason = code === null ? null : explainRefusal(code, queue.topic, message);
        const [firstEntry] = batch;
        if (code === 0) {
          for (const { index } of batch) outcomes[index] = RECORD_ACKNOWLEDGED;
          const key = formatPartitionKey(queue);
          sequences.set(key, (sequences.getWithDefault(key, 0) + batch.length) & MAX_SEQUENCE_NUMBER);
        } else if (reason === null || firstEntry === undefined) {
          hasFailed = true;
          needsNewId ||= code !== null && ERRORS_NEEDING_NEW_PRODUCER_ID.has(getErrorName(code));
          for (const { index } of batch) outcomes[index] = { is: "open", error };
        } else if (batch.length === 1) {
          outcomes[firstEntry.index] = { is: "refused", reason };
        } else {
          // Send the batch in halves, to find the refused record and to store all other records.
          const halfBatchLength = Math.ceil(batch.length / 2);
          queue.batches.unshift(batch.slice(0, halfBatchLength), batch.slice(halfBatchLength));
        }
      }
    }
    if (hasFailed) endProducerEpoch(needsNewId);
    // Records stay open if their topic has an error or no leader; the cached metadata may be outdated.
    else if (outcomes.some(({ is }) => is === "open")) cluster.clearCache();
    return outcomes;
  }

  async function sendFirstBatches(queues: readonly PartitionQueue[]) {
    const sentBatches = queues.map((queue) => ({ queue, batch: queue.batches.shift() ?? [] }));
    const [{ leader } = { leader: { host: "", port: 0 } }] = queues;
    try {
      const broker = await connections.connect(leader);
      const records = sentBatches.flatMap(({ queue: { partition }, batch }) =>
        batch.map(({ record }) => ({ ...record, partition, timestamp: BigInt(record.timestampMs) })),
      );
      const identity = producer === null ? {} : { producerId: producer.id, producerEpoch: producer.epoch, sequences };
      const options = { compression: config.compression, ...identity };
      const deadlineMs = config.publish_deadline;
      const response = await broker.request(PRODUCE_VERSIONS, ProduceAcks.ALL, deadlineMs, records, options);
      const topicResponses = (response as produceV11.ProduceResponse).responses;
      return sentBatches.map(({ queue, batch }) => {
        const partition = topicResponses
          .find(({ name }) => name === queue.topic)
          ?.partitionResponses.find(({ index }) => index === queue.partition);
        const code = partition?.errorCode ?? MISSING_RESPONSE_ERROR_CODE;
        const message = partition?.errorMessage ?? partition?.recordErrors[0]?.batchIndexErrorMessage ?? null;
        return { queue, batch, code, message, error: mapBatchError(code, queue.topic) };
      });
    } catch (cause) {
      const error = mapConnectionError(cause, leader);
      return sentBatches.map(({ queue, batch }) => ({ queue, batch, code: null, message: null, error }));
    }
  }

  return { prepare: ensureProducerId, send: sendRecords };
}

/** Assigns records to partitions by key (murmur2, as Java clients). Stops at a record whose partition has no leader. */
function queueRecordsByPartition(
  records: readonly KafkaRecord[],
  topics: ReadonlyMap<string, TopicMetadata>,
  maxBatchBytes: number,
  outcomes: RecordOutcome[],
): readonly PartitionQueue[] {
  const queues = new Map<string, PartitionQueue & { bytes: number }>();
  for (const [index, record] of records.entries()) {
    const { code = LEADER_NOT_AVAILABLE_CODE, leaders = [] } = topics.get(record.topic) ?? {};
    const partition = leaders.length === 0 ? 0 : compatibilityPartitioner(record, record.key) % leaders.length;
    const leader = leaders[partition];
    if (code !== 0 || leader === undefined || leader === null) {
      const error = mapTopicError(code === 0 ? LEADER_NOT_AVAILABLE_CODE : code, record.topic);
      outcomes[index] = { is: "open", error };
      break;
    }
    const key = formatPartitionKey({ topic: record.topic, partition });
    const queue = queues.get(key) ?? { topic: record.topic, partition, leader, batches: [[]], bytes: 0 };
    queues.set(key, queue);
    if (queue.bytes > 0 && queue.bytes + record.bytes > maxBatchBytes) {
      queue.batches.push([]);
      queue.bytes = 0;
    }
    queue.batches.at(-1)?.push({ index, record });
    queue.bytes += record.bytes;
  }
  return [...queues.values()];
}

const formatPartitionKey = ({ topic, partition }: Pick<PartitionQueue, "topic" | "partition">): string =>
  `${topic}:${partition}`;
