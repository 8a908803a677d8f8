import { addAbortListener } from "node:events";
import { type IClientOptions, MqttClient } from "mqtt";
import { ConfigError, type Failure, Rejected, Retryable, Throttled } from "../../src/core/errors/errors.ts";
import {
  connectionFailure,
  isNoResponseError,
  needsTlsError,
  probeTlsHandshake,
  type ServerInfo,
  serverSpeaksTls,
  tlsUnsupportedError,
} from "../../src/core/http/connection-problem.ts";
import { NO_PACKET_LISTENER, openBrokerSocket } from "./publish-packets.ts";

// Reason codes: MQTT 5.0, section 2.4. Return codes 1 to 5: MQTT 3.1.1, section 3.2.2.3.

/** Error for a broker that closed the connection before it sent a readable packet. `diagnoseHangUp` finds the cause. */
export class BrokerHungUp extends Retryable {}

/** Errors of mqtt-packet for data that is not MQTT, such as a TLS alert. */
const NOT_MQTT_ERROR_PATTERN =
  /^(Invalid|Malformed|Cannot parse|Packet too short|Packet must not|Unknown property|Not supported)/;

export function mapConnectError(error: unknown, address: string, usesMqtt5: boolean): Failure {
  const code = readErrorCode(error);
  const isOtherProtocol = code === undefined && error instanceof Error && NOT_MQTT_ERROR_PATTERN.test(error.message);
  if (isOtherProtocol || isNoResponseError(error)) {
    const problemText = isOtherProtocol ? "What it answered is no MQTT" : `It broke the connection (${code})`;
    const hint = "If that stays so, check the port in url.";
    return new BrokerHungUp(`The broker at ${address} could not be reached. ${problemText}.`, { hint, cause: error });
  }
  if (typeof code !== "number") return connectionFailure(error, describeBroker(address));
  if (code === 1 && usesMqtt5) return createMqtt311OnlyError(address);
  const refusal = CONNECT_REFUSALS[MQTT5_CODE_OF_RETURN_CODE[code] ?? code];
  if (refusal === undefined)
    return new Retryable(`The broker at ${address} refused the connection (reason ${code}).`, { cause: error });
  const [message, hint, reason = "settings"] = refusal;
  return new ConfigError(`The broker at ${address} ${message}.`, { hint, reason, cause: error });
}

function describeBroker(address: string): ServerInfo {
  return {
    name: `The broker at ${address}`,
    failureText: "could not be reached",
    addressOption: "url",
    caOption: "tls.ca_file",
    secureSetting: "mqtts://",
    plaintextSetting: "mqtt://",
  };
}

/** Creates the error for a broker without MQTT 5, such as RabbitMQ before 4 or Mosquitto before 1.6. */
function createMqtt311OnlyError(address: string): ConfigError {
  const message = `The broker at ${address} knows MQTT 3.1.1 only, and was spoken to in MQTT 5.`;
  return new ConfigError(message, { hint: USE_MQTT_311_HINT, field: "protocol" });
}

type ConnectRefusal = readonly [message: string, hint: string, reason?: "unauthenticated" | "forbidden"];

/** Reason code of MQTT 5 for each return code of MQTT 3.1.1 that has the same meaning. */
const MQTT5_CODE_OF_RETURN_CODE: Readonly<Record<number, number>> = { 2: 133, 4: 134, 5: 135 };
const USE_MQTT_311_HINT = 'Set protocol: "3.1.1".';

const CONNECT_REFUSALS: Readonly<Record<number, ConnectRefusal>> = {
  1: ["does not speak MQTT 3.1.1", 'Set protocol: "5", or use a newer broker.'],
  132: ["does not speak this version of MQTT", USE_MQTT_311_HINT],
  133: ["does not accept our client id", "Set client_id to one that it accepts."],
  134: ["does not accept the user name or password", "Check username and password.", "unauthenticated"],
  135: ["does not let us in", "Check username, password and the broker's access list.", "forbidden"],
  138: ["has banned us", "Ask its administrator.", "forbidden"],
  140: ["wants another way of authentication", "Only user name and password, or a certificate, are supported."],
  144: ["does not accept our status topic", "Choose another prefix."],
  154: ["does not keep messages", "Allow retained messages there, or use another broker."],
  155: ["does not offer QoS 1", "Allow QoS 1 there: without acknowledgements nothing can be delivered reliably."],
  156: ["sends us to another server", "Set url to the address that it names."],
  157: ["has moved to another server", "Set url to the new address."],
};

export function mapPublishRejection(code: number, topic: string): Failure {
  const rejection = PUBLISH_REJECTION_TEXTS[code];
  if (rejection !== undefined) return new Rejected(`The broker does not ${rejection.replace("{topic}", () => topic)}.`);
  if (code === 151) return new Throttled("The broker's quota for us is used up (151).", null);
  return new Retryable(`The broker did not take a message (reason ${code}).`);
}

const PUBLISH_REJECTION_TEXTS: Readonly<Record<number, string>> = {
  135: "allow us to publish to {topic} (not authorised, 135)",
  144: "accept the topic {topic} (144)",
  // Mosquitto does not announce its `message_size_limit`. A retry would fail too.
  149: "take a message for {topic} of this size (149)",
  153: "accept the payload for {topic} (153)",
};

export function mapSubscribeError(error: unknown, filter: string): Failure {
  const code = readErrorCode(error);
  if (code === 128 || code === 135 || code === 143) {
    const message = `The broker does not let us subscribe to ${filter} (reason ${code}).`;
    const hint = "Allow it in the broker's access list; see connectors/mqtt/acl.example.";
    return new ConfigError(message, { hint, reason: "forbidden", cause: error });
  }
  return new Retryable(`The broker did not subscribe us to ${filter}.`, { cause: error });
}

/** Returns the failure for a DISCONNECT (MQTT 5); null without a reason. */
export function mapDisconnectReason(code: number | undefined, address: string): Failure | null {
  switch (code) {
    case undefined:
    case 0:
      return null;
    case 142:
      return new ConfigError(`Another client with our client id has connected to the broker at ${address}.`, {
        hint: "Run one worker only, or give each its own client_id.",
      });
    // The broker did not announce its size limit, so which message was too large is unknown.
    case 149:
      return new ConfigError(`The broker at ${address} ended the connection: a message is too large for it (149).`, {
        field: "max_message_bytes",
        hint: "Set max_message_bytes to what the broker takes; larger messages become dead letters then.",
      });
    case 151:
      return new Throttled(`Our quota at the broker at ${address} is used up (151).`, null);
    default:
      return new Retryable(`The broker at ${address} ended the connection (reason ${code}).`);
  }
}

/** Every broker accepts messages of up to this number of characters; also the minimum of `max_message_bytes`. */
const SAFE_PAYLOAD_LENGTH = 1_024;

/** Adds a hint about the message size, because a broker of MQTT 3.1.1 only disconnects when a message is too large. */
export function addSizeHint(reason: unknown, maxPayloadLength: number): unknown {
  if (!(reason instanceof Retryable) || reason.hint !== undefined || maxPayloadLength <= SAFE_PAYLOAD_LENGTH)
    return reason;
  const hint = `If that stays so, the broker may find a message too large: the longest on its way has ${maxPayloadLength} characters, and max_message_bytes can be set lower.`;
  return new Retryable(reason.message, { cause: reason.cause, hint });
}

function readErrorCode(error: unknown): number | string | undefined {
  const code = error instanceof Error && "code" in error ? error.code : undefined;
  return typeof code === "number" || typeof code === "string" ? code : undefined;
}

const PROBE_TIMEOUT_MS = 3_000;

/**
 * Returns why a broker closed the connection without a packet; null when a retry may help. Probes without credentials
 * for plain MQTT at a TLS port, TLS at a plain port, and MQTT 5 at a broker that supports only 3.1.1.
 */
export async function diagnoseHangUp(
  clientOptions: IClientOptions,
  address: string,
  cause: unknown,
  signal: AbortSignal,
): Promise<Failure | null> {
  const { username: _name, password: _password, will: _will, ...options } = clientOptions;
  const probeOptions: IClientOptions = { ...options, clientId: `${clientOptions.clientId ?? "plenum"}-asks` };
  if (clientOptions.protocol === "mqtts") {
    const endedInTlsHandshake = isNoResponseError(cause);
    if (endedInTlsHandshake && (await doesBrokerRespond({ ...probeOptions, protocol: "mqtt" }, signal)))
      return tlsUnsupportedError(describeBroker(address), "it answers without");
  } else {
    const brokerAddress = { host: String(clientOptions.host), port: Number(clientOptions.port) };
    const probeTls = (timeout: AbortSignal) => probeTlsHandshake(brokerAddress, AbortSignal.any([timeout, signal]));
    if (await serverSpeaksTls(probeTls)) return needsTlsError(describeBroker(address));
  }
  // Retry MQTT 5 first, because the broker may only have restarted; then try 3.1.1.
  if (clientOptions.protocolVersion !== 5 || (await doesBrokerRespond(probeOptions, signal))) return null;
  const supportsMqtt311 = await doesBrokerRespond({ ...probeOptions, protocolVersion: 4 }, signal);
  return supportsMqtt311 ? createMqtt311OnlyError(address) : null;
}

/** Returns true if the broker responds to CONNECT, even with a refusal, except a refusal of the MQTT version. */
async function doesBrokerRespond(probeOptions: IClientOptions, signal: AbortSignal): Promise<boolean> {
  if (signal.aborted) return false;
  const settings = { ...probeOptions, connectTimeout: PROBE_TIMEOUT_MS, reconnectPeriod: 0, resubscribe: false };
  const probeClient = new MqttClient(() => openBrokerSocket(settings, NO_PACKET_LISTENER), settings);
  const { promise: response, resolve } = Promise.withResolvers<boolean>();
  using _abortListener = addAbortListener(signal, () => resolve(false));
  probeClient.once("connect", () => resolve(true));
  probeClient.on("error", (error) => {
    const code = readErrorCode(error);
    resolve(typeof code === "number" && code !== 1 && code !== 132);
  });
  probeClient.once("close", () => resolve(false));
  const hasResponded = await response;
  probeClient.end(!hasResponded);
  return hasResponded;
}
