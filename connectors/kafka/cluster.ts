import type { initProducerIdV5, metadataV12 } from "@platformatic/kafka";
import { ConfigError } from "../../src/core/errors/errors.ts";
import type { Clock } from "../../src/core/runtime/clock.ts";
import type { Address, KafkaConfig } from "./config.ts";
import { addressOf } from "./config.ts";
import { type Broker, type Connections, requestVersions, UnsupportedRequest } from "./connections.ts";
import { connectionFailure, Disconnected, nameOfCode, producerIdFailure } from "./outcome.ts";

export interface Topic {
  readonly name: string;
  readonly code: number;
  /** Leaders by partition number; null for a partition without a leader. */
  readonly leaders: readonly (Address | null)[];
  readonly mayWrite: boolean | null;
}

export interface ProducerId {
  readonly id: bigint;
  readonly epoch: number;
}

/** Version 4 is Kafka 0.11; before, the broker's own setting decides whether a request creates a topic. */
const METADATA = requestVersions<typeof metadataV12.api>("metadata", 12, 1);
const PRODUCER_ID = requestVersions<typeof initProducerIdV5.api>("initProducerId", 5, 0);

const MAX_AGE_MS = 300_000;
const CREATED_WITHIN_MS = 20_000;
/** Bit of the write right in a topic's operations, and the value for unknown rights. */
const WRITE_BIT = 1 << 4;
const UNSTATED = -2_147_483_648;
const UNKNOWN_TOPIC = 3;
export const LEADER_NOT_AVAILABLE = 5;

export type Cluster = ReturnType<typeof createCluster>;

export function createCluster(config: KafkaConfig, connections: Connections, clock: Clock) {
  const cache = new Map<string, { readonly topic: Topic; readonly atMs: number }>();
  const requestedAt = new Map<string, number>();
  let knownBrokers: readonly Address[] = [];

  async function request<T>(send: (broker: Broker) => Promise<T>): Promise<T> {
    const broker = await connections.connectToAny([...config.brokers.map(addressOf), ...knownBrokers]);
    try {
      return await send(broker);
    } catch (error) {
      const failure = connectionFailure(error, broker.address);
      if (!(failure instanceof Disconnected)) throw failure;
      throw (await connections.diagnoseDisconnect(broker.address)) ?? failure;
    }
  }

  async function requestMetadata(names: readonly string[] | null, create: boolean, operations: boolean) {
    const response = await request((broker) =>
      broker.request(METADATA, names === null ? null : [...names], create, operations),
    );
    const brokers = new Map(response.brokers.map(({ nodeId, host, port }) => [nodeId, { host, port }]));
    knownBrokers = [...brokers.values()];
    return response.topics.map(
      ({ name, errorCode, partitions, topicAuthorizedOperations: allowed }): Topic => ({
        name: name ?? "",
        code: errorCode,
        leaders: partitions
          .toSorted((a, b) => a.partitionIndex - b.partitionIndex)
          .map(({ leaderId }) => brokers.get(leaderId) ?? null),
        mayWrite: allowed === undefined || allowed === UNSTATED ? null : (allowed & WRITE_BIT) !== 0,
      }),
    );
  }

  /** Returns true for a missing topic that was requested recently: the brokers may be creating it. */
  function isBeingCreated({ name, code }: Topic): boolean {
    if (code === 0) requestedAt.delete(name);
    if (!config.create_topics || nameOfCode(code) !== "UNKNOWN_TOPIC_OR_PARTITION") return false;
    const sinceMs = requestedAt.get(name) ?? clock.monotonic();
    requestedAt.set(name, sinceMs);
    return clock.monotonic() - sinceMs < CREATED_WITHIN_MS;
  }

  return {
    async topics(names: readonly string[]): Promise<ReadonlyMap<string, Topic>> {
      const now = clock.monotonic();
      const uncached = names.filter((name) => now - (cache.get(name)?.atMs ?? Number.NEGATIVE_INFINITY) >= MAX_AGE_MS);
      if (uncached.length > 0) {
        for (const topic of await requestMetadata(uncached, config.create_topics, false)) {
          const code = isBeingCreated(topic) ? LEADER_NOT_AVAILABLE : topic.code;
          cache.set(topic.name, { topic: { ...topic, code }, atMs: code === 0 ? now : Number.NEGATIVE_INFINITY });
        }
      }
      const missing = { code: UNKNOWN_TOPIC, leaders: [], mayWrite: null };
      return new Map(names.map((name) => [name, cache.get(name)?.topic ?? { name, ...missing }]));
    },

    /** Requests the metadata of these topics, or of all visible ones, with our rights. */
    describeTopics: (names: readonly string[] | null) => requestMetadata(names, false, true),

    /** Requests a new producer id, under which the brokers count our batches. */
    async requestProducerId(): Promise<ProducerId> {
      try {
        const response = await request((broker) => broker.request(PRODUCER_ID, null, 0));
        if (response.errorCode !== 0) throw producerIdFailure(response.errorCode);
        return { id: response.producerId, epoch: response.producerEpoch };
      } catch (error) {
        if (!(error instanceof UnsupportedRequest)) throw error;
        const message = "The Kafka cluster knows no idempotent producers.";
        throw new ConfigError(message, { hint: "Set idempotent: false.", field: "idempotent", cause: error });
      }
    },

    clearCache: () => cache.clear(),
  };
}
