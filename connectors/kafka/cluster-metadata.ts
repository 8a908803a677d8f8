import type { initProducerIdV5, metadataV12 } from "@platformatic/kafka";
import { ConfigError } from "../../src/core/errors/errors.ts";
import type { Clock } from "../../src/core/runtime/clock.ts";
import {
  type BrokerConnection,
  type BrokerConnections,
  listRequestVersions,
  UnsupportedKafkaRequest,
} from "./broker-connections.ts";
import { BrokerDisconnected, getErrorName, mapConnectionError, mapProducerIdError } from "./broker-failures.ts";
import type { HostAndPort, KafkaConfig } from "./config.ts";
import { parseBrokerAddress } from "./config.ts";

export interface TopicMetadata {
  readonly name: string;
  readonly code: number;
  readonly leaders: readonly (HostAndPort | null)[];
  readonly mayWrite: boolean | null;
}

export interface ProducerId {
  readonly id: bigint;
  readonly epoch: number;
}

/** Versions of the metadata request. Before version 4 (Kafka 0.11), the broker decides whether to create topics. */
const METADATA_REQUEST_VERSIONS = listRequestVersions<typeof metadataV12.api>("metadata", 12, 1);
const PRODUCER_ID_REQUEST_VERSIONS = listRequestVersions<typeof initProducerIdV5.api>("initProducerId", 5, 0);

const TOPIC_METADATA_MAX_AGE_MS = 300_000;
const TOPIC_CREATION_TIMEOUT_MS = 20_000;
const WRITE_PERMISSION_BIT = 1 << 4;
const UNKNOWN_PERMISSIONS = -2_147_483_648;
const UNKNOWN_TOPIC_ERROR_CODE = 3;
export const LEADER_NOT_AVAILABLE_CODE = 5;

export type KafkaCluster = ReturnType<typeof createKafkaCluster>;

export function createKafkaCluster(config: KafkaConfig, connections: BrokerConnections, clock: Clock) {
  const topicCache = new Map<string, { readonly topic: TopicMetadata; readonly cachedAtMs: number }>();
  const firstRequestMsByTopic = new Map<string, number>();
  let knownBrokers: readonly HostAndPort[] = [];

  async function requestAnyBroker<T>(sendRequest: (broker: BrokerConnection) => Promise<T>): Promise<T> {
    const broker = await connections.connectToAny([...config.brokers.map(parseBrokerAddress), ...knownBrokers]);
    try {
      return await sendRequest(broker);
    } catch (error) {
      const connectionFailure = mapConnectionError(error, broker.address);
      if (!(connectionFailure instanceof BrokerDisconnected)) throw connectionFailure;
      throw (await connections.diagnoseDisconnect(broker.address)) ?? connectionFailure;
    }
  }

  async function requestMetadata(names: readonly string[] | null, createMissing: boolean, includePermissions: boolean) {
    const response = await requestAnyBroker((broker) =>
      broker.request(METADATA_REQUEST_VERSIONS, names === null ? null : [...names], createMissing, includePermissions),
    );
    const brokerAddressById = new Map(response.brokers.map(({ nodeId, host, port }) => [nodeId, { host, port }]));
    knownBrokers = [...brokerAddressById.values()];
    return response.topics.map(
      ({ name, errorCode, partitions, topicAuthorizedOperations: allowedOperations }): TopicMetadata => ({
        name: name ?? "",
        code: errorCode,
        leaders: partitions
          .toSorted((a, b) => a.partitionIndex - b.partitionIndex)
          .map(({ leaderId }) => brokerAddressById.get(leaderId) ?? null),
        mayWrite:
          allowedOperations === undefined || allowedOperations === UNKNOWN_PERMISSIONS
            ? null
            : (allowedOperations & WRITE_PERMISSION_BIT) !== 0,
      }),
    );
  }

  /** Returns true for a missing topic that was requested recently: the brokers may be creating it. */
  function isTopicBeingCreated({ name, code }: TopicMetadata): boolean {
    if (code === 0) firstRequestMsByTopic.delete(name);
    if (!config.create_topics || getErrorName(code) !== "UNKNOWN_TOPIC_OR_PARTITION") return false;
    const firstRequestedMs = firstRequestMsByTopic.get(name) ?? clock.monotonic();
    firstRequestMsByTopic.set(name, firstRequestedMs);
    return clock.monotonic() - firstRequestedMs < TOPIC_CREATION_TIMEOUT_MS;
  }

  return {
    async readTopics(names: readonly string[]): Promise<ReadonlyMap<string, TopicMetadata>> {
      const nowMs = clock.monotonic();
      const uncachedTopics = names.filter(
        (name) => nowMs - (topicCache.get(name)?.cachedAtMs ?? Number.NEGATIVE_INFINITY) >= TOPIC_METADATA_MAX_AGE_MS,
      );
      if (uncachedTopics.length > 0) {
        for (const topic of await requestMetadata(uncachedTopics, config.create_topics, false)) {
          const code = isTopicBeingCreated(topic) ? LEADER_NOT_AVAILABLE_CODE : topic.code;
          topicCache.set(topic.name, {
            topic: { ...topic, code },
            cachedAtMs: code === 0 ? nowMs : Number.NEGATIVE_INFINITY,
          });
        }
      }
      const missingTopicMetadata = { code: UNKNOWN_TOPIC_ERROR_CODE, leaders: [], mayWrite: null };
      return new Map(names.map((name) => [name, topicCache.get(name)?.topic ?? { name, ...missingTopicMetadata }]));
    },

    /** Requests the metadata and Plenum's permissions for the given topics; null means all visible topics. */
    describeTopics: (names: readonly string[] | null) => requestMetadata(names, false, true),

    async requestProducerId(): Promise<ProducerId> {
      try {
        const response = await requestAnyBroker((broker) => broker.request(PRODUCER_ID_REQUEST_VERSIONS, null, 0));
        if (response.errorCode !== 0) throw mapProducerIdError(response.errorCode);
        return { id: response.producerId, epoch: response.producerEpoch };
      } catch (error) {
        if (!(error instanceof UnsupportedKafkaRequest)) throw error;
        const message = "The Kafka cluster knows no idempotent producers.";
        throw new ConfigError(message, { hint: "Set idempotent: false.", field: "idempotent", cause: error });
      }
    },

    clearCache: () => topicCache.clear(),
  };
}
