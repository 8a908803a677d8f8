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

/** What a cluster says about a topic. */
export interface Topic {
  readonly name: string;
  /** 0 where it is there, otherwise the broker's code. */
  readonly code: number;
  /** By number; null where a partition has no leader at the moment. */
  readonly leaders: readonly (Address | null)[];
  /** Whether we may write to it; null where the cluster does not say. */
  readonly mayWrite: boolean | null;
}

export interface ProducerId {
  readonly id: bigint;
  readonly epoch: number;
}

export interface Cluster {
  /** Where these topics are, or why they are not; remembered for a while. */
  topics(names: readonly string[]): Promise<ReadonlyMap<string, Topic>>;
  /** These topics, or with null all that we may see, with what we may do; asked anew. */
  look(names: readonly string[] | null): Promise<readonly Topic[]>;
  /** A number under which the brokers count what we send; another one each time. */
  producerId(): Promise<ProducerId>;
  /** What was remembered may be wrong. */
  forget(): void;
}

export interface ClusterOptions {
  readonly bootstrap: readonly Address[];
  readonly connections: Connections;
  readonly createTopics: boolean;
  readonly clock: Clock;
  /** Why a broker hung up at the first question; null where nobody knows. */
  readonly diagnoseDisconnect: (address: Address) => Promise<ConfigError | null>;
}

/** Before the fourth (Kafka 0.11) nobody can say that a topic is not to be created: such a broker does as it is set. */
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

/** So long an answer about a topic holds, in milliseconds, as with other producers; a failure ends it at once. */
const MAX_AGE_MS = 300_000;
/** So long a topic may take to come into being after we asked for it, in milliseconds. */
const CREATED_WITHIN_MS = 20_000;
/** Its bit in the operations that are allowed on a topic, and what stands there when nobody says. */
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
  /** When a topic was first asked for that is not there yet. */
  const requestedAt = new Map<string, number>();
  /** Those that the cluster named last. */
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

  /** The answer, also where it says that a part of it is wrong. */
  async function responseOf<Answer>(broker: Broker, question: () => Promise<Answer>): Promise<Answer> {
    try {
      return await question();
    } catch (error) {
      if (error instanceof ResponseError && error.response !== undefined) return error.response as Answer;
      const failure = connectionFailure(error, broker.address);
      throw failure instanceof Disconnected
        ? ((await diagnoseDisconnect(broker.address)) ?? failure)
        : failure;
    }
  }

  /** Nothing was said about a topic that we have only just asked for: it may be coming into being. */
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
          if (code !== 0)
            known.set(topic.name, { topic: { ...topic, code }, atMs: Number.NEGATIVE_INFINITY });
        }
      }
      return new Map(
        names.map((name) => [
          name,
          known.get(name)?.topic ?? { name, code: UNKNOWN, leaders: [], mayWrite: null },
        ]),
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
