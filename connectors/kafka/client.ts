import { ConfigError } from "../../src/core/errors/errors.ts";
import { isLoopback } from "../../src/core/http/loopback.ts";
import type { Clock } from "../../src/core/runtime/clock.ts";
import { connectionOptions } from "./client-options.ts";
import { type Cluster, createCluster } from "./cluster.ts";
import { type Address, addressOf, type KafkaConfig } from "./config.ts";
import { createConnections } from "./connections.ts";
import { brokerAt } from "./outcome.ts";
import { createProducer, type Producer } from "./producer.ts";
import { whyHungUp } from "./wrong-door.ts";

/** What is needed to talk to one cluster, put together. */
export interface Client {
  readonly cluster: Cluster;
  readonly producer: Producer;
  /** Does something; when the signal aborts, every connection ends, and so does what is being done. */
  during<T>(signal: AbortSignal, work: () => Promise<T>): Promise<T>;
  end(): void;
}

export function createClient(config: KafkaConfig, clock: Clock): Client {
  const bootstrap = config.brokers.map(addressOf);
  const options = connectionOptions(config, clock);
  /** That of what is being done. */
  let current = AbortSignal.abort();
  const connections = createConnections({
    clientId: config.client_id,
    options,
    mayTalkTo(address) {
      current.throwIfAborted();
      refusePlainPassword(config, address);
    },
  });
  const cluster = createCluster({
    bootstrap,
    connections,
    createTopics: config.create_topics,
    clock,
    whyHungUp: (address) => whyHungUp(address, options(address.host), current),
  });
  const producer = createProducer({
    cluster,
    connections,
    idempotent: config.idempotent,
    compression: config.compression,
    maxBatchBytes: config.max_message_bytes,
    ackWithinMs: config.publish_deadline,
  });
  return {
    cluster,
    producer,
    async during(signal, work) {
      signal.throwIfAborted();
      current = signal;
      const abort = () => connections.end();
      signal.addEventListener("abort", abort, { once: true });
      try {
        return await work();
      } catch (error) {
        throw signal.aborted ? signal.reason : error;
      } finally {
        signal.removeEventListener("abort", abort);
      }
    },
    end: () => connections.end(),
  };
}

/** A cluster on this machine may name brokers on others, which the configuration could not know. */
function refusePlainPassword({ sasl, tls, plain_text }: KafkaConfig, address: Address): void {
  if (sasl === undefined || tls.enabled || plain_text || isLoopback(address.host)) return;
  throw new ConfigError(
    `${brokerAt(address).name} would get our password readable to everybody on the way.`,
    {
      hint: "Set tls.enabled: true, or plain_text: true to send it anyway.",
      field: "sasl",
    },
  );
}
