import { compatibilityPartitioner, NumericMap, ProduceAcks, type produceV11 } from "@platformatic/kafka";
import type { Failure } from "../../src/core/errors/errors.ts";
import { type Cluster, LEADER_NOT_AVAILABLE, type ProducerId, type Topic } from "./cluster.ts";
import type { Address, KafkaConfig } from "./config.ts";
import { type Connections, requestVersions } from "./connections.ts";
import { batchFailure, connectionFailure, nameOfCode, refusal, topicFailure } from "./outcome.ts";
import type { KafkaRecord } from "./records.ts";

/** All in-sync replicas have the record, the topic can never take it, or it was not sent or not acknowledged. */
export type RecordOutcome =
  | { readonly is: "acknowledged" }
  | { readonly is: "refused"; readonly reason: string }
  | { readonly is: "open"; readonly error?: Failure };

type Run = { readonly index: number; readonly record: KafkaRecord }[];

interface Lane {
  readonly topic: string;
  readonly partition: number;
  readonly leader: Address;
  readonly runs: Run[];
}

interface RunResponse {
  readonly lane: Lane;
  readonly run: Run;
  readonly code: number | null;
  readonly message: string | null;
  readonly error: Failure;
}

const PRODUCE = requestVersions<typeof produceV11.api>("produce", 11, 3);

const ACKNOWLEDGED: RecordOutcome = { is: "acknowledged" };
/** Code for a partition that the response omits: UNKNOWN_SERVER_ERROR. */
const NO_RESPONSE = -1;
const MAX_EPOCH = 32_767;
const MAX_SEQUENCE = 0x7fff_ffff;

/** The broker lost or rejected our producer id or sequence: request a new id, then resend. */
const NEEDS_NEW_PRODUCER_ID = new Set([
  "OUT_OF_ORDER_SEQUENCE_NUMBER",
  "DUPLICATE_SEQUENCE_NUMBER",
  "INVALID_PRODUCER_EPOCH",
  "UNKNOWN_PRODUCER_ID",
  "INVALID_PRODUCER_ID_MAPPING",
  "PRODUCER_FENCED",
]);

export function createProducer(config: KafkaConfig, connections: Connections, cluster: Cluster) {
  let producer: ProducerId | null = null;
  const sequences = new NumericMap();

  async function prepare(): Promise<void> {
    if (config.idempotent) producer ??= await cluster.requestProducerId();
  }

  /** After a failure, brokers refuse a late batch of the old epoch, which could overwrite newer values. */
  function closeEpoch(needsNewId: boolean): void {
    cluster.clearCache();
    sequences.clear();
    if (producer === null) return;
    producer = needsNewId || producer.epoch >= MAX_EPOCH ? null : { id: producer.id, epoch: producer.epoch + 1 };
  }

  /** Returns the outcomes. Each partition has one request at a time, and none after a failure, so order is kept. */
  async function send(records: readonly KafkaRecord[]): Promise<readonly RecordOutcome[]> {
    const outcomes: RecordOutcome[] = records.map(() => ({ is: "open" }));
    await prepare();
    const topics = await cluster.topics([...new Set(records.map(({ topic }) => topic))]);
    const lanes = lanesOf(records, topics, config.max_message_bytes, outcomes);
    let needsNewId = false;
    let failed = false;
    while (!failed) {
      const waiting = lanes.filter(({ runs }) => runs.length > 0);
      if (waiting.length === 0) break;
      const byLeader = Map.groupBy(waiting, ({ leader }) => `${leader.host} ${leader.port}`);
      const responses = await Promise.all([...byLeader.values()].map(produce));
      for (const { lane, run, code, message, error } of responses.flat()) {
        const reason = code === null ? null : refusal(code, lane.topic, message);
        const [first] = run;
        if (code === 0) {
          for (const { index } of run) outcomes[index] = ACKNOWLEDGED;
          const key = partitionKey(lane);
          sequences.set(key, (sequences.getWithDefault(key, 0) + run.length) & MAX_SEQUENCE);
        } else if (reason === null || first === undefined) {
          failed = true;
          needsNewId ||= code !== null && NEEDS_NEW_PRODUCER_ID.has(nameOfCode(code));
          for (const { index } of run) outcomes[index] = { is: "open", error };
        } else if (run.length === 1) {
          outcomes[first.index] = { is: "refused", reason };
        } else {
          // Search for the refused record: halves are sent one after the other, so that the others are stored.
          const half = Math.ceil(run.length / 2);
          lane.runs.unshift(run.slice(0, half), run.slice(half));
        }
      }
    }
    if (failed) closeEpoch(needsNewId);
    // Metadata of a topic without a leader may be outdated.
    else if (outcomes.some(({ is }) => is === "open")) cluster.clearCache();
    return outcomes;
  }

  async function produce(lanes: readonly Lane[]): Promise<readonly RunResponse[]> {
    const sent = lanes.map((lane) => ({ lane, run: lane.runs.shift() ?? [] }));
    const [{ leader } = { leader: { host: "", port: 0 } }] = lanes;
    try {
      const broker = await connections.connect(leader);
      const records = sent.flatMap(({ lane, run }) => run.map(({ record }) => wireRecord(record, lane.partition)));
      const identity = producer === null ? {} : { producerId: producer.id, producerEpoch: producer.epoch, sequences };
      const options = { compression: config.compression, ...identity };
      const response = await broker.request(PRODUCE, ProduceAcks.ALL, config.publish_deadline, records, options);
      const topics = (response as produceV11.ProduceResponse).responses;
      return sent.map(({ lane, run }) => {
        const partition = topics
          .find(({ name }) => name === lane.topic)
          ?.partitionResponses.find(({ index }) => index === lane.partition);
        const code = partition?.errorCode ?? NO_RESPONSE;
        const message = partition?.errorMessage ?? partition?.recordErrors[0]?.batchIndexErrorMessage ?? null;
        return { lane, run, code, message, error: batchFailure(code, lane.topic) };
      });
    } catch (cause) {
      const error = connectionFailure(cause, leader);
      return sent.map(({ lane, run }) => ({ lane, run, code: null, message: null, error }));
    }
  }

  return { prepare, send };
}

/** Partitions by key as the Java clients (murmur2). Stops at the first record without a leader, to send none twice. */
function lanesOf(
  records: readonly KafkaRecord[],
  topics: ReadonlyMap<string, Topic>,
  maxBatchBytes: number,
  outcomes: RecordOutcome[],
): readonly Lane[] {
  const lanes = new Map<string, Lane & { bytes: number }>();
  for (const [index, record] of records.entries()) {
    const { code = LEADER_NOT_AVAILABLE, leaders = [] } = topics.get(record.topic) ?? {};
    const partition = leaders.length === 0 ? 0 : compatibilityPartitioner(record, record.key) % leaders.length;
    const leader = leaders[partition];
    if (code !== 0 || leader === undefined || leader === null) {
      outcomes[index] = { is: "open", error: topicFailure(code === 0 ? LEADER_NOT_AVAILABLE : code, record.topic) };
      break;
    }
    const key = partitionKey({ topic: record.topic, partition });
    const lane = lanes.get(key) ?? { topic: record.topic, partition, leader, runs: [[]], bytes: 0 };
    lanes.set(key, lane);
    if (lane.bytes > 0 && lane.bytes + record.bytes > maxBatchBytes) {
      lane.runs.push([]);
      lane.bytes = 0;
    }
    lane.runs.at(-1)?.push({ index, record });
    lane.bytes += record.bytes;
  }
  return [...lanes.values()];
}

function wireRecord({ topic, key, value, headers, timestampMs }: KafkaRecord, partition: number) {
  return { topic, partition, key, value, headers, timestamp: BigInt(timestampMs) };
}

const partitionKey = ({ topic, partition }: Pick<Lane, "topic" | "partition">): string => `${topic}:${partition}`;
