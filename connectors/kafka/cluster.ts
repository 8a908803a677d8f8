import {
  initProducerIdV0,
  initProducerIdV1,
  initProducerIdV2,
  initProducerIdV3,
  initProducerIdV4,
  initProducerIdV5,
  metadataV1,
  metadataV2,
  metadataV3,
  metadataV4,
  metadataV5,
  metadataV6,
  metadataV7,
  metadataV8,
  metadataV9,
  metadataV10,
  metadataV11,
  metadataV12,
  ResponseError,
} from "@platformatic/kafka";
import { ConfigError } from "../../src/core/errors/errors.ts";
import type { Clock } from "../../src/core/runtime/clock.ts";
import type { Address } from "./config.ts";
import { type Broker, type Connections, UnsupportedRequest } from "./connections.ts";
import { connectionFailure, Disconnected, nameOfCode, producerIdFailure } from "./outcome.ts";

export interface Topic {
  readonly name: string;
  /** 0 for an existing topic, otherwise the broker's error code. */
  readonly code: number;
  /** Leaders by partition number; null for a partition without a leader. */
  readonly leaders: readonly (Address | null)[];
  /** True where we may write; null where the cluster does not say. */
  readonly mayWrite: boolean | null;
}

export interface ProducerId {
  readonly id: bigint;
  readonly epoch: number;
}

export interface Cluster {
  /** Returns the metadata of these topics, cached for a while. */
  topics(names: readonly string[]): Promise<ReadonlyMap<string, Topic>>;
  /** Requests the metadata of these topics, or of all visible ones, with our rights. */
  look(names: readonly string[] | null): Promise<readonly Topic[]>;
  /** Requests a new producer id, under which the brokers count our batches. */
  producerId(): Promise<ProducerId>;
  forget(): void;
}

export interface ClusterOptions {
  readonly bootstrap: readonly Address[];
  readonly connections: Connections;
  readonly createTopics: boolean;
  readonly clock: Clock;
  /** Explains why a broker disconnected at the first request; null where unknown. */
  readonly diagnoseDisconnect: (address: Address) => Promise<ConfigError | null>;
}

/**
 * Metadata versions, newest first. Below version 4 (Kafka 0.11), the broker's own setting decides whether a
 * request creates a topic.
 */
const METADATA = [
  metadataV12.api,
  metadataV11.api,
  metadataV10.api,
  metadataV9.api,
  metadataV8.api,
  metadataV7.api,
  metadataV6.api,
  metadataV5.api,
  metadataV4.api,
  metadataV3.api,
  metadataV2.api,
  metadataV1.api,
] as unknown as readonly (typeof metadataV12.api)[];

const PRODUCER_ID = [
  initProducerIdV5.api,
  initProducerIdV4.api,
  initProducerIdV3.api,
  initProducerIdV2.api,
  initProducerIdV1.api,
  initProducerIdV0.api,
] as unknown as readonly (typeof initProducerIdV5.api)[];

/** Cache time of topic metadata, in milliseconds, as in other producers; a failure clears it. */
const MAX_AGE_MS = 300_000;
/** Longest time for the creation of a requested topic, in milliseconds. */
const CREATED_WITHIN_MS = 20_000;
/** Bit of the write right in a topic's operations, and the value for unknown rights. */
const WRITE_BIT = 1 << 4;
const UNSTATED = -2_147_483_648;

export function createCluster({
  bootstrap,
  connections,
  createTopics,
  clock,
  diagnoseDisconnect,
}: ClusterOptions): Cluster {
  const known = new Map<string, { readonly topic: Topic; readonly atMs: number }>();
  /** Time of the first request for each missing topic. */
  const requestedAt = new Map<string, number>();
  /** Brokers in the cluster's last response. */
  let knownBrokers: readonly Address[] = [];

  async function requestMetadata(names: readonly string[] | null, create: boolean, operations: boolean) {
    const broker = await connections.toAny([...bootstrap, ...knownBrokers]);
    const response = await responseOf(broker, () =>
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

  /** Returns the response, also one with an error in a part of it. */
  async function responseOf<Answer>(broker: Broker, question: () => Promise<Answer>): Promise<Answer> {
    try {
      return await question();
    } catch (error) {
      if (error instanceof ResponseError && error.response !== undefined) return error.response as Answer;
      const failure = connectionFailure(error, broker.address);
      throw failure instanceof Disconnected ? ((await diagnoseDisconnect(broker.address)) ?? failure) : failure;
    }
  }

  /** True for a missing topic that was requested recently: the brokers may be creating it. */
  function isBeingCreated({ name, code }: Topic): boolean {
    if (code === 0) requestedAt.delete(name);
    if (!createTopics || nameOfCode(code) !== "UNKNOWN_TOPIC_OR_PARTITION") return false;
    const sinceMs = requestedAt.get(name) ?? clock.monotonic();
    requestedAt.set(name, sinceMs);
    return clock.monotonic() - sinceMs < CREATED_WITHIN_MS;
  }

  return {
    async topics(names) {
      const now = clock.monotonic();
      const unknown = names.filter((name) => {
        const topic = known.get(name);
        return topic === undefined || now - topic.atMs >= MAX_AGE_MS;
      });
      if (unknown.length > 0) {
        for (const topic of await requestMetadata(unknown, createTopics, false)) {
          if (topic.code === 0) known.set(topic.name, { topic, atMs: now });
          const code = isBeingCreated(topic) ? LEADER_NOT_AVAILABLE : topic.code;
          if (code !== 0) known.set(topic.name, { topic: { ...topic, code }, atMs: Number.NEGATIVE_INFINITY });
        }
      }
      return new Map(
        names.map((name) => [name, known.get(name)?.topic ?? { name, code: UNKNOWN, leaders: [], mayWrite: null }]),
      );
    },

    look: (names) => requestMetadata(names, false, true),

    async producerId() {
      const broker = await connections.toAny([...bootstrap, ...knownBrokers]);
      try {
        const { errorCode, producerId, producerEpoch } = await responseOf(broker, () =>
          broker.request(PRODUCER_ID, null, 0),
        );
        if (errorCode !== 0) throw producerIdFailure(errorCode);
        return { id: producerId, epoch: producerEpoch };
      } catch (error) {
        if (!(error instanceof UnsupportedRequest)) throw error;
        throw new ConfigError("The Kafka cluster knows no idempotent producers.", {
          hint: "Set idempotent: false.",
          field: "idempotent",
          cause: error,
        });
      }
    },

    forget() {
      known.clear();
    },
  };
}

const UNKNOWN = 3;
const LEADER_NOT_AVAILABLE = 5;
