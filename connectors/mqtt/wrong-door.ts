import { type IClientOptions, MqttClient } from "mqtt";
import type { Failure } from "../../src/core/errors/errors.ts";
import {
  endedUnanswered,
  noTls,
  probeServer,
  speaksTls,
  wantsTls,
} from "../../src/core/http/connection-problem.ts";
import { brokerAt, knowsOldMqttOnly } from "./reasons.ts";
import { NOBODY, openSocket } from "./socket.ts";

/** Longest wait for an answer to each question, in milliseconds: whoever hung up was quick to do so. */
const ASK_MS = 3_000;

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
export async function whyHungUp(
  client: IClientOptions,
  place: string,
  cause: unknown,
  signal: AbortSignal,
): Promise<Failure | null> {
  const greeting: IClientOptions = { ...client, clientId: `${client.clientId ?? "plenum"}-asks` };
  delete greeting.username;
  delete greeting.password;
  delete greeting.will;

  if (client.protocol === "mqtts") {
    const inHandshake = endedUnanswered(cause);
    if (inHandshake && (await answers({ ...greeting, protocol: "mqtt" }, signal))) {
      return noTls(brokerAt(place), "it answers without");
    }
  } else {
    const address = { host: String(client.host), port: Number(client.port) };
    const knock = (limit: AbortSignal) => probeServer(address, AbortSignal.any([limit, signal]));
    if (await speaksTls(knock)) return wantsTls(brokerAt(place));
  }
  // Once more in 5, lest it was a restart, and then in 3.1.1.
  if (client.protocolVersion !== 5 || (await answers(greeting, signal))) return null;
  return (await answers({ ...greeting, protocolVersion: 4 }, signal)) ? knowsOldMqttOnly(place) : null;
}

/** Whether a greeting gets an answer, be it that we are not let in; a version that it does not know is none. */
function answers(greeting: IClientOptions, signal: AbortSignal): Promise<boolean> {
  if (signal.aborted) return Promise.resolve(false);
  return new Promise((resolve) => {
    const settings = { ...greeting, connectTimeout: ASK_MS, reconnectPeriod: 0, resubscribe: false };
    const asked = new MqttClient(() => openSocket(settings, NOBODY), settings);
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
