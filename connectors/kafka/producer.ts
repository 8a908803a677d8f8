import {
  type CompressionAlgorithmValue,
  compatibilityPartitioner,
  NumericMap,
  ProduceAcks,
  produceV3,
  produceV4,
  produceV5,
  produceV6,
  produceV7,
  produceV8,
  produceV9,
  produceV10,
  produceV11,
  ResponseError,
} from "@platformatic/kafka";
import type { Failure } from "../../src/core/errors/errors.ts";
import type { Cluster, ProducerId, Topic } from "./cluster.ts";
import type { Address } from "./config.ts";
import type { Connections } from "./connections.ts";
import { batchFailure, connectionFailure, nameOfCode, refusal, topicFailure } from "./outcome.ts";
import type { KafkaRecord } from "./records.ts";

/**
 * Outcome of a record: all in-sync replicas have it, the topic can never take it, or it was not sent or not
 * acknowledged.
 */
export type RecordOutcome =
  | { readonly is: "acknowledged" }
  | { readonly is: "refused"; readonly reason: string }
  | { readonly is: "open"; readonly error?: Failure };

export interface Producer {
  /** Prepares everything except topics. */
  prepare(): Promise<void>;
  /**
   * Sends the records and returns their outcomes. Each partition has one request at a time, and none after a
   * failure, so order within a key is kept.
   */
  send(records: readonly KafkaRecord[]): Promise<readonly RecordOutcome[]>;
}

export interface ProducerOptions {
  readonly cluster: Cluster;
  readonly connections: Connections;
  readonly idempotent: boolean;
  readonly compression: CompressionAlgorithmValue;
  /** Largest size of a batch's records, in bytes. */
  readonly maxBatchBytes: number;
  /** Longest wait of the brokers for their replicas, in milliseconds. */
  readonly ackWithinMs: number;
}

type ProduceResponse = produceV11.ProduceResponse;

/** Records of one partition that are sent together. */
type Run = { readonly index: number; readonly record: KafkaRecord }[];

interface Lane {
  readonly topic: string;
  readonly partition: number;
  readonly leader: Address;
  readonly runs: Run[];
}

const PRODUCE = [
  produceV11.api,
  produceV10.api,
  produceV9.api,
  produceV8.api,
  produceV7.api,
  produceV6.api,
  produceV5.api,
  produceV4.api,
  produceV3.api,
] as unknown as readonly (typeof produceV11.api)[];

const ACKNOWLEDGED: RecordOutcome = { is: "acknowledged" };
const LEADER_NOT_AVAILABLE = 5;
/** Largest epoch of a producer id (16 bits) and largest sequence number of a record (31 bits). */
const MAX_EPOCH = 32_767;
const MAX_SEQUENCE = 0x7fff_ffff;

export function createProducer(options: ProducerOptions): Producer {
  const { cluster, connections } = options;
  /** Current producer id; null where a new one is needed. */
  let producer: ProducerId | null = null;
  /** Next sequence number, by topic and partition. */
  const sequences = new NumericMap();

  async function prepare(): Promise<void> {
    if (!options.idempotent || producer !== null) return;
    producer = await cluster.producerId();
  }

  /**
   * Starts a new epoch after a failure, when it is unknown what the brokers have. The broker then refuses a late
   * batch of the old epoch, which could otherwise overwrite newer values.
   */
  function closeEpoch(needsNewId: boolean): void {
    cluster.forget();
    sequences.clear();
    if (producer === null) return;
    producer = needsNewId || producer.epoch >= MAX_EPOCH ? null : { id: producer.id, epoch: producer.epoch + 1 };
  }

  async function send(records: readonly KafkaRecord[]): Promise<readonly RecordOutcome[]> {
    const outcomes: RecordOutcome[] = records.map(() => ({ is: "open" }));
    await prepare();
    const topics = await cluster.topics([...new Set(records.map(({ topic }) => topic))]);
    const lanes = lanesOf(records, topics, options.maxBatchBytes, outcomes);
    let needsNewId = false;
    let failed = false;
    while (!failed) {
      const waiting = [...lanes.values()].filter(({ runs }) => runs.length > 0);
      if (waiting.length === 0) break;
      const responses = await Promise.all(
        [...Map.groupBy(waiting, ({ leader }) => `${leader.host} ${leader.port}`).values()].map(produce),
      );
      for (const { lane, run, code, said, error } of responses.flat()) {
        const why = code === null ? null : refusal(code, lane.topic, said);
        const [first] = run;
        if (code === 0) {
          for (const { index } of run) outcomes[index] = ACKNOWLEDGED;
          const name = partitionKey(lane);
          sequences.set(name, (sequences.getWithDefault(name, 0) + run.length) & MAX_SEQUENCE);
        } else if (why === null || first === undefined) {
          failed = true;
          needsNewId ||= code !== null && NEEDS_NEW_PRODUCER_ID.has(nameOfCode(code));
          for (const { index } of run) outcomes[index] = { is: "open", error };
        } else if (run.length === 1) {
          outcomes[first.index] = { is: "refused", reason: why };
        } else {
          // Search for the refused record: halves are sent one after the other, so that the others are
          // stored.
          const half = Math.ceil(run.length / 2);
          lane.runs.unshift(run.slice(0, half), run.slice(half));
        }
      }
    }
    if (failed) closeEpoch(needsNewId);
    // Metadata of a topic without a leader may be outdated.
    else if (outcomes.some(({ is }) => is === "open")) cluster.forget();
    return outcomes;
  }

  /** Sends one request to one broker, with the next run of each of its partitions. */
  async function produce(lanes: readonly Lane[]): Promise<readonly PartitionResponse[]> {
    const sent = lanes.map((lane) => ({ lane, run: lane.runs.shift() ?? [] }));
    const [{ leader } = { leader: { host: "", port: 0 } }] = lanes;
    try {
      const broker = await connections.to(leader);
      const response = await responseOf(() =>
        broker.request(
          PRODUCE,
          ProduceAcks.ALL,
          options.ackWithinMs,
          sent.flatMap(({ lane, run }) => run.map(({ record }) => wireRecord(record, lane.partition))),
          {
            compression: options.compression,
            ...(producer === null ? {} : { producerId: producer.id, producerEpoch: producer.epoch, sequences }),
          },
        ),
      );
      return sent.map(({ lane, run }) => {
        const partition = response.responses
          .find(({ name }) => name === lane.topic)
          ?.partitionResponses.find(({ index }) => index === lane.partition);
        const code = partition?.errorCode ?? NO_RESPONSE;
        const [about] = partition?.recordErrors ?? [];
        const said = partition?.errorMessage ?? about?.batchIndexErrorMessage ?? null;
        return { lane, run, code, said, error: batchFailure(code, lane.topic) };
      });
    } catch (error) {
      const failure = connectionFailure(error, leader);
      return sent.map(({ lane, run }) => ({ lane, run, code: null, said: null, error: failure }));
    }
  }

  return { prepare, send };
}

interface PartitionResponse {
  readonly lane: Lane;
  readonly run: Run;
  readonly code: number | null;
  readonly said: string | null;
  readonly error: Failure;
}

/** Code for a partition that the response omits: UNKNOWN_SERVER_ERROR. */
const NO_RESPONSE = -1;

/** The broker lost or rejected our producer id or sequence: request a new id, then resend. */
const NEEDS_NEW_PRODUCER_ID = new Set([
  "OUT_OF_ORDER_SEQUENCE_NUMBER",
  "DUPLICATE_SEQUENCE_NUMBER",
  "INVALID_PRODUCER_EPOCH",
  "UNKNOWN_PRODUCER_ID",
  "INVALID_PRODUCER_ID_MAPPING",
  "PRODUCER_FENCED",
]);

/**
 * Assigns every record to its partition by its key, as the Java clients do (murmur2). Stops at the first record
 * without a leader: later records would only be sent twice.
 */
function lanesOf(
  records: readonly KafkaRecord[],
  topics: ReadonlyMap<string, Topic>,
  maxBatchBytes: number,
  outcomes: RecordOutcome[],
): ReadonlyMap<string, Lane> {
  const lanes = new Map<string, Lane & { bytes: number }>();
  for (const [index, record] of records.entries()) {
    const topic = topics.get(record.topic);
    const leaders = topic?.leaders ?? [];
    const partition = leaders.length === 0 ? 0 : compatibilityPartitioner(record, record.key) % leaders.length;
    const leader = leaders[partition];
    if (topic === undefined || topic.code !== 0 || leader === undefined || leader === null) {
      const code = topic === undefined || topic.code === 0 ? LEADER_NOT_AVAILABLE : topic.code;
      outcomes[index] = { is: "open", error: topicFailure(code, record.topic) };
      break;
    }
    const name = partitionKey({ topic: record.topic, partition });
    const lane = lanes.get(name) ?? { topic: record.topic, partition, leader, runs: [], bytes: 0 };
    lanes.set(name, lane);
    const last = lane.runs.at(-1);
    if (last === undefined || lane.bytes + record.bytes > maxBatchBytes) {
      lane.runs.push([{ index, record }]);
      lane.bytes = record.bytes;
    } else {
      last.push({ index, record });
      lane.bytes += record.bytes;
    }
  }
  return lanes;
}

function wireRecord({ topic, key, value, headers, timestampMs }: KafkaRecord, partition: number) {
  return { topic, partition, key, value, headers, timestamp: BigInt(timestampMs) };
}

/** Key by which the library looks up a partition's sequence. */
function partitionKey({ topic, partition }: Pick<Lane, "topic" | "partition">): string {
  return `${topic}:${partition}`;
}

/** Returns the response, also one that reports a failed partition. */
async function responseOf(question: () => Promise<ProduceResponse | boolean>): Promise<ProduceResponse> {
  try {
    return (await question()) as ProduceResponse;
  } catch (error) {
    if (error instanceof ResponseError && error.response !== undefined) {
      return error.response as ProduceResponse;
    }
    throw error;
  }
}
