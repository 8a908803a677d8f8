import { type IClientOptions, MqttClient } from "mqtt";
import { ConfigError, type Failure, Rejected, Retryable, Throttled } from "../../src/core/errors/errors.ts";
import {
  endedUnanswered,
  failureOfConnection,
  noTls,
  probeServer,
  type Server,
  speaksTls,
  wantsTls,
} from "../../src/core/http/connection-problem.ts";
import { NO_LISTENER, openSocket } from "./fast-path.ts";

/**
 * What a broker's numbers and a connection's errors mean.
 * Numbers: MQTT 5.0, 2.4 (reason codes); MQTT 3.1.1, 3.2.2.3 (connect return codes, 1 to 5).
 */

/**
 * The connection came about and ended before the broker had said anything that can be read; wrong-door.ts finds out
 * whether it is the wrong one.
 */
export class HungUp extends Retryable {}

/** What mqtt-packet says to bytes that are no MQTT, such as an alert of TLS; it gives them no code. */
const NOT_MQTT =
  /^(Invalid|Malformed|Cannot parse|Packet too short|Packet must not|Unknown property|Not supported)/;

/** Why the broker, or TLS, did not let us in. */
export function connectFailure(error: unknown, address: string, inMqtt5: boolean): Failure {
  const code = codeOf(error);
  const noMqtt = code === undefined && error instanceof Error && NOT_MQTT.test(error.message);
  if (noMqtt || endedUnanswered(error)) {
    const how = noMqtt ? "What it answered is no MQTT" : `It broke the connection (${code})`;
    return new HungUp(`The broker at ${address} could not be reached. ${how}.`, {
      hint: "If that stays so, check the port in url.",
      cause: error,
    });
  }
  // 1 is the number of MQTT 3.1.1, and no broker that speaks 5 has another use for it.
  if (code === 1 && inMqtt5) return supportsMqtt311Only(address);
  const refusalMessage = typeof code === "number" ? REFUSED[code] : undefined;
  if (refusalMessage !== undefined) {
    const [message, hint, reason] = refusalMessage;
    return new ConfigError(`The broker at ${address} ${message}.`, {
      hint,
      reason: reason ?? "settings",
      cause: error,
    });
  }
  if (typeof code === "number") {
    return new Retryable(`The broker at ${address} refused the connection (reason ${code}).`, {
      cause: error,
    });
  }
  return failureOfConnection(error, brokerAt(address));
}

/** The broker in the words of src/core/http/connection-problem.ts, which knows what is wrong with a connection. */
function brokerAt(address: string): Server {
  return {
    name: `The broker at ${address}`,
    failed: "could not be reached",
    addressOption: "url",
    authorityOption: "tls.ca_file",
    secureScheme: "mqtts://",
    plainScheme: "mqtt://",
  };
}

/** It knows MQTT 3.1.1, and we spoke 5: RabbitMQ before 4, Mosquitto before 1.6, many older ones. */
function supportsMqtt311Only(address: string): ConfigError {
  return new ConfigError(`The broker at ${address} knows MQTT 3.1.1 only, and was spoken to in MQTT 5.`, {
    hint: PROTOCOL[1],
    field: "protocol",
  });
}

type RefusalMessage = readonly [message: string, hint: string, reason?: "unauthenticated" | "forbidden"];

const PROTOCOL: RefusalMessage = ["does not speak this version of MQTT", 'Set protocol: "3.1.1".'];
const CLIENT_ID: RefusalMessage = ["does not accept our client id", "Set client_id to one that it accepts."];
const PASSWORD: RefusalMessage = [
  "does not accept the user name or password",
  "Check username and password.",
  "unauthenticated",
];
const NOT_ALLOWED: RefusalMessage = [
  "does not let us in",
  "Check username, password and the broker's access list.",
  "forbidden",
];

const REFUSED: Readonly<Record<number, RefusalMessage>> = {
  1: ["does not speak MQTT 3.1.1", 'Set protocol: "5", or use a newer broker.'],
  2: CLIENT_ID,
  4: PASSWORD,
  5: NOT_ALLOWED,
  132: PROTOCOL,
  133: CLIENT_ID,
  134: PASSWORD,
  135: NOT_ALLOWED,
  138: ["has banned us", "Ask whoever runs it.", "forbidden"],
  140: [
    "wants another way of authentication",
    "Only user name and password, or a certificate, are supported.",
  ],
  144: ["does not accept our status topic", "Choose another prefix."],
  154: ["does not keep messages", "Allow retained messages there, or use another broker."],
  155: [
    "does not offer QoS 1",
    "Allow QoS 1 there: without acknowledgements nothing can be delivered reliably.",
  ],
  156: ["sends us to another server", "Set url to the address that it names."],
  157: ["has moved to another server", "Set url to the new address."],
};

/** Why a message was not taken. `code` is the reason of a PUBACK, 128 or more. */
export function publishFailure(code: number, topic: string): Failure {
  switch (code) {
    case 135:
      return new Rejected(`The broker does not allow us to publish to ${topic} (not authorised, 135).`);
    case 144:
      return new Rejected(`The broker does not accept the topic ${topic} (144).`);
    // Mosquitto's `message_size_limit`, which it does not tell beforehand: it would be as large the next time.
    case 149:
      return new Rejected(`The broker does not take a message for ${topic} of this size (149).`);
    case 153:
      return new Rejected(`The broker does not accept the payload for ${topic} (153).`);
    case 151:
      return new Throttled("The broker's quota for us is used up (151).", null);
    default:
      return new Retryable(`The broker did not take a message (reason ${code}).`);
  }
}

/** Why a subscription was not granted. */
export function subscribeFailure(error: unknown, filter: string): Failure {
  const code = codeOf(error);
  if (code === 128 || code === 135 || code === 143) {
    return new ConfigError(`The broker does not let us subscribe to ${filter} (reason ${code}).`, {
      hint: "Allow it in the broker's access list; see connectors/mqtt/acl.example.",
      reason: "forbidden",
      cause: error,
    });
  }
  return new Retryable(`The broker did not subscribe us to ${filter}.`, { cause: error });
}

/** Why the broker ended a connection, from its DISCONNECT (MQTT 5); null when it gave no reason. */
export function disconnectFailure(code: number | undefined, address: string): Failure | null {
  switch (code) {
    case undefined:
    case 0:
      return null;
    case 142:
      return new ConfigError(`Another client with our client id has connected to the broker at ${address}.`, {
        hint: "Run one worker only, or give each its own client_id.",
      });
    // It did not tell its limit when it let us in, so nobody here knows which message it means.
    case 149:
      return new ConfigError(
        `The broker at ${address} ended the connection: a message is too large for it (149).`,
        {
          field: "max_message_bytes",
          hint: "Set max_message_bytes to what the broker takes; larger messages become dead letters then.",
        },
      );
    case 151:
      return new Throttled(`Our quota at the broker at ${address} is used up (151).`, null);
    default:
      return new Retryable(`The broker at ${address} ended the connection (reason ${code}).`);
  }
}

/** Below this no broker finds a message too large, in characters; `max_message_bytes` cannot be set lower. */
const SURELY_SMALL = 1_024;

/**
 * Why a connection ended while messages were on their way, the longest of so many characters. A broker of MQTT 3.1.1 has no
 * word for one that is too large: it hangs up, each time anew, and only a person can tell that from a broken line.
 */
export function withSize(reason: unknown, longest: number): unknown {
  if (!(reason instanceof Retryable) || reason.hint !== undefined || longest <= SURELY_SMALL) return reason;
  return new Retryable(reason.message, {
    cause: reason.cause,
    hint: `If that stays so, the broker may find a message too large: the longest on its way has ${longest} characters, and max_message_bytes can be set lower.`,
  });
}

function codeOf(error: unknown): number | string | undefined {
  const code = error instanceof Error && "code" in error ? error.code : undefined;
  return typeof code === "number" || typeof code === "string" ? code : undefined;
}

/** Longest wait for an answer to each question, in milliseconds: whoever hung up was quick to do so. */
const PROBE_MS = 3_000;

/**
 * Why a broker hung up before it had said a word. It may be restarting, and then the same attempt goes well later; or
 * we stand at the wrong door, and then it never will:
 *
 * - plain MQTT at a port for TLS, or TLS at a port for plain MQTT,
 * - MQTT 5 at a broker that knows 3.1.1 only and breaks off over what it cannot read (RabbitMQ before 4).
 *
 * So the other door is tried, without user name, password or will, and nothing is sent but the greeting. Null when
 * that opens no other: then time may help.
 */
export async function diagnoseHangUp(
  client: IClientOptions,
  address: string,
  cause: unknown,
  signal: AbortSignal,
): Promise<Failure | null> {
  const greeting: IClientOptions = { ...client, clientId: `${client.clientId ?? "plenum"}-asks` };
  delete greeting.username;
  delete greeting.password;
  delete greeting.will;

  if (client.protocol === "mqtts") {
    const inHandshake = endedUnanswered(cause);
    if (inHandshake && (await isAnswered({ ...greeting, protocol: "mqtt" }, signal))) {
      return noTls(brokerAt(address), "it answers without");
    }
  } else {
    const target = { host: String(client.host), port: Number(client.port) };
    const knock = (limit: AbortSignal) => probeServer(target, AbortSignal.any([limit, signal]));
    if (await speaksTls(knock)) return wantsTls(brokerAt(address));
  }
  // Once more in 5, lest it was a restart, and then in 3.1.1.
  if (client.protocolVersion !== 5 || (await isAnswered(greeting, signal))) return null;
  return (await isAnswered({ ...greeting, protocolVersion: 4 }, signal))
    ? supportsMqtt311Only(address)
    : null;
}

/** Whether a greeting gets an answer, be it that we are not let in; a version that it does not know is none. */
function isAnswered(greeting: IClientOptions, signal: AbortSignal): Promise<boolean> {
  if (signal.aborted) return Promise.resolve(false);
  return new Promise((resolve) => {
    const settings = { ...greeting, connectTimeout: PROBE_MS, reconnectPeriod: 0, resubscribe: false };
    const asked = new MqttClient(() => openSocket(settings, NO_LISTENER), settings);
    const end = (answered: boolean) => {
      signal.removeEventListener("abort", aborted);
      asked.end(!answered);
      resolve(answered);
    };
    const aborted = () => end(false);
    signal.addEventListener("abort", aborted, { once: true });
    asked.once("connect", () => end(true));
    asked.on("error", (error) => {
      const code = "code" in error ? error.code : undefined;
      end(typeof code === "number" && code !== 1 && code !== 132);
    });
    asked.once("close", () => end(false));
  });
}
