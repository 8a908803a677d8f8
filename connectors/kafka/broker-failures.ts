import { GenericError, MultipleErrors, protocolErrorsCodesById } from "@platformatic/kafka";
import { asFailure, ConfigError, type Failure, Retryable } from "../../src/core/errors/errors.ts";
import { connectionFailure, type ServerInfo } from "../../src/core/http/connection-problem.ts";
import type { HostAndPort } from "./config.ts";

// Error codes: https://kafka.apache.org/protocol#protocol_error_codes

/** Error for a broker that closed the connection before it responded. `diagnoseDisconnect` finds the cause. */
export class BrokerDisconnected extends Retryable {}

export const getErrorName = (code: number): string => protocolErrorsCodesById[code] ?? `error ${code}`;

/** Reasons by error code for a refused record. A record refused alone with such a code becomes a dead letter. */
const REASON_BY_RECORD_ERROR: Readonly<Record<string, string>> = {
  MESSAGE_TOO_LARGE: "it is larger than the topic takes (max.message.bytes)",
  RECORD_LIST_TOO_LARGE: "it is larger than a segment of the topic (segment.bytes)",
  INVALID_TIMESTAMP: "the topic does not take its time (message.timestamp.before.max.ms, …after.max.ms)",
  INVALID_RECORD: "the topic does not take such a record",
};

/** Returns why the topic can never take a record; null for other errors. */
export function explainRefusal(code: number, topic: string, message: string | null): string | null {
  const errorName = getErrorName(code);
  const reason = REASON_BY_RECORD_ERROR[errorName];
  return reason === undefined
    ? null
    : `Topic ${topic}: ${reason}. The broker says ${errorName}${message ? `: ${message}` : ""}.`;
}

type TopicErrorDescription = readonly [message: string, hint: string, reason: "forbidden" | "settings"];

/** Topic errors that a person must fix in the configuration of Plenum or of the brokers. */
const TOPIC_ERROR_BY_NAME: Readonly<Record<string, TopicErrorDescription>> = {
  UNKNOWN_TOPIC_OR_PARTITION: [
    "does not exist",
    "Create it, or set create_topics: true where the brokers create topics by themselves.",
    "settings",
  ],
  TOPIC_AUTHORIZATION_FAILED: [
    "may not be written by us, or does not exist",
    "Allow Describe and Write on it for our user; with create_topics also Create.",
    "forbidden",
  ],
  CLUSTER_AUTHORIZATION_FAILED: [
    "may not be written by us with an idempotent producer",
    "Allow IdempotentWrite on the cluster for our user, or set idempotent: false.",
    "forbidden",
  ],
  INVALID_TOPIC_EXCEPTION: ["is refused by the brokers as a name", "Choose another template in topic.", "settings"],
  POLICY_VIOLATION: ["goes against a policy of the brokers", "Ask their administrator.", "settings"],
  INVALID_REPLICATION_FACTOR: [
    "cannot be created: there are too few brokers for its replicas",
    "Create it by hand, or change default.replication.factor.",
    "settings",
  ],
  UNSUPPORTED_COMPRESSION_TYPE: ["does not take this compression", "Choose another compression.", "settings"],
};

const TOO_FEW_REPLICAS_HINT = "Too few replicas are in sync (min.insync.replicas); a broker is probably away.";

export function mapTopicError(code: number, topic: string): Failure {
  const errorName = getErrorName(code);
  const topicError = TOPIC_ERROR_BY_NAME[errorName];
  if (topicError !== undefined) {
    const [message, hint, reason] = topicError;
    return new ConfigError(`Topic ${topic} ${message} (${errorName}).`, { hint, reason });
  }
  const options = errorName.startsWith("NOT_ENOUGH_REPLICAS") ? { hint: TOO_FEW_REPLICAS_HINT } : {};
  return new Retryable(`Topic ${topic} took nothing at the moment (${errorName}).`, options);
}

/** Maps an error of a batch. An unknown topic is retryable until the next metadata request. */
export function mapBatchError(code: number, topic: string): Failure {
  return getErrorName(code) === "UNKNOWN_TOPIC_OR_PARTITION"
    ? new Retryable(`Topic ${topic} is not at this broker (any more).`)
    : mapTopicError(code, topic);
}

export function mapProducerIdError(code: number): Failure {
  const errorName = getErrorName(code);
  if (errorName === "CLUSTER_AUTHORIZATION_FAILED") {
    const message = `The Kafka cluster does not let us use an idempotent producer (${errorName}).`;
    const hint =
      "Allow Write on the topics for our user, before Kafka 2.8 also IdempotentWrite on the cluster; or set idempotent: false.";
    return new ConfigError(message, { hint, reason: "forbidden", field: "idempotent" });
  }
  return new Retryable(`The Kafka cluster gave us no producer id (${errorName}).`);
}

type ConfigErrorOptions = ConstructorParameters<typeof ConfigError>[1];

const SASL_ERROR_BY_NAME: Readonly<Record<string, readonly [message: string, options: ConfigErrorOptions]>> = {
  SASL_AUTHENTICATION_FAILED: [
    "does not accept the user name or password",
    { reason: "unauthenticated", field: "sasl", hint: "Check sasl.username, sasl.password and sasl.mechanism." },
  ],
  UNSUPPORTED_SASL_MECHANISM: [
    "does not offer this way of authentication",
    { field: "sasl.mechanism", hint: "Choose another sasl.mechanism." },
  ],
  ILLEGAL_SASL_STATE: [
    "does not ask for a password at this port",
    { field: "brokers", hint: "Check the port in brokers, or leave sasl out." },
  ],
};

export function mapConnectionError(error: unknown, address: HostAndPort): Failure {
  const knownFailure = asFailure(error);
  if (knownFailure === error) return knownFailure;
  const server = describeBroker(address);
  const errorNames = collectKafkaErrorNames(error);
  const saslError = SASL_ERROR_BY_NAME[errorNames.find((name) => name in SASL_ERROR_BY_NAME) ?? ""];
  if (saslError !== undefined) return new ConfigError(`${server.name} ${saslError[0]}.`, saslError[1]);
  const rootCause = findRootCause(error);
  const isLibraryError = rootCause instanceof GenericError || rootCause instanceof MultipleErrors;
  return isLibraryError ? mapKafkaError(rootCause, server, errorNames) : connectionFailure(rootCause, server);
}

function mapKafkaError(error: GenericError | MultipleErrors, server: ServerInfo, codes: readonly string[]): Failure {
  const { name } = server;
  if (error.message === "Broker requires TLS.") return createTlsRequiredError(server);
  if (error.code === "PLT_KFK_AUTHENTICATION") {
    const message = `${name} could not prove that it knows our password, or spoke no SCRAM.`;
    const hint = "Check the port in brokers and sasl.mechanism; otherwise somebody may be in between.";
    return new ConfigError(message, { hint, reason: "unauthenticated", field: "sasl" });
  }
  if (/timed out/i.test(error.message)) return new Retryable(`${name} gave no answer in time.`);
  if (/closed/i.test(error.message)) {
    const hint = "If that stays so, check its port, tls.enabled and sasl.";
    return new BrokerDisconnected(`${name} broke the connection.`, { hint });
  }
  return new Retryable(`${name} could not do it at the moment (${codes[0] ?? error.code}).`);
}

export function createTlsRequiredError({ name }: ServerInfo): ConfigError {
  const hint = "Set tls.enabled: true, or another port in brokers.";
  return new ConfigError(`${name} speaks TLS, and was talked to without.`, { hint, field: "tls" });
}

export function describeBroker({ host, port }: HostAndPort): ServerInfo {
  return {
    name: `The Kafka broker at ${host.includes(":") ? `[${host}]` : host}:${port}`,
    failureText: "could not be reached",
    addressOption: "brokers",
    caOption: "tls.ca_file",
    secureSetting: "tls.enabled: true",
    plaintextSetting: "tls.enabled: false",
  };
}

function collectKafkaErrorNames(error: unknown): readonly string[] {
  if (!(error instanceof Error)) return [];
  const ownErrorNames = error instanceof GenericError && typeof error.apiId === "string" ? [error.apiId] : [];
  const nestedErrors: readonly unknown[] = error instanceof AggregateError ? error.errors : [];
  return [...ownErrorNames, ...nestedErrors.flatMap(collectKafkaErrorNames), ...collectKafkaErrorNames(error.cause)];
}

function findRootCause(error: unknown): unknown {
  return error instanceof Error && error.cause instanceof Error ? findRootCause(error.cause) : error;
}
