import { createHash } from "node:crypto";
import { hostname } from "node:os";
import type { IClientOptions } from "mqtt";
import type { ConnectorContext } from "../../src/core/connector.ts";
import { VERIFIED_TLS } from "../../src/core/http/verified-tls.ts";
import type { Clock } from "../../src/core/runtime/clock.ts";
import { readCertificateFile, secretReader } from "../../src/core/runtime/secret.ts";
import type { MqttConfig } from "./config.ts";
import type { MqttMessage } from "./publish-packets.ts";
import { MAX_RECEIVED_PACKET_BYTES } from "./publish-packets.ts";

/** Maximum number of commands that the broker may send before Plenum acknowledges one. */
const MAX_UNACKNOWLEDGED_COMMANDS = 20;

const SESSION_EXPIRY_SECONDS = 86_400;

export type ConfiguredBroker = ReturnType<typeof configureBroker>;

export function configureBroker(config: MqttConfig, clock: Clock) {
  const readPassword = config.password === undefined ? () => null : secretReader(config.password, clock);
  return { config, clock, readPassword };
}

export interface SessionOptions {
  readonly clientId: string;
  readonly will?: MqttMessage;
  /** Asks the broker to keep the session. A lost session means that the broker was restarted. */
  readonly keepsSession?: boolean;
}

/** Builds connection options. Reads certificates and secrets each time, so renewed ones need no restart. */
export function buildClientOptions(
  { config, readPassword }: ConfiguredBroker,
  { clientId, will, keepsSession = false }: SessionOptions,
): IClientOptions {
  const url = new URL(config.url);
  const isSecure = url.protocol === "mqtts:";
  const password = readPassword()?.reveal();
  return {
    protocol: isSecure ? "mqtts" : "mqtt",
    host: url.hostname.replace(/^\[|\]$/g, ""),
    port: url.port === "" ? (isSecure ? 8883 : 1883) : Number(url.port),
    ...(isSecure ? buildTlsOptions(config.tls) : {}),
    clientId,
    ...(config.username === undefined ? {} : { username: config.username }),
    ...(password === undefined ? {} : { password }),
    protocolVersion: config.protocol === "5" ? 5 : 4,
    clean: !keepsSession,
    keepalive: Math.round(config.keepalive / 1_000),
    connectTimeout: config.connect_deadline,
    ...(will === undefined
      ? {}
      : { will: { topic: will.topic, payload: Buffer.from(will.payload), qos: 1, retain: will.retain } }),
    properties: {
      sessionExpiryInterval: keepsSession ? SESSION_EXPIRY_SECONDS : 0,
      maximumPacketSize: MAX_RECEIVED_PACKET_BYTES,
      receiveMaximum: MAX_UNACKNOWLEDGED_COMMANDS,
    },
  };
}

function buildTlsOptions({ ca_file, cert_file, key_file, servername }: MqttConfig["tls"]): IClientOptions {
  const readPem = (option: string, path: string | undefined) =>
    path === undefined ? {} : { [option]: readCertificateFile(path, "tls") };
  const pemFiles = { ...readPem("ca", ca_file), ...readPem("cert", cert_file), ...readPem("key", key_file) };
  return { ...VERIFIED_TLS, ...pemFiles, ...(servername === undefined ? {} : { servername }) };
}

export const getBrokerAddress = (config: MqttConfig): string => new URL(config.url).host;

/** Returns a client id that stays the same over restarts and, in a fleet, for all members that run the source. */
export function buildClientId(
  { client_id: configuredId, prefix }: MqttConfig,
  { name, identity, assignment }: Pick<ConnectorContext, "name" | "identity" | "assignment">,
  host = hostname(),
): string {
  if (configuredId !== undefined)
    return assignment === undefined ? configuredId : `${configuredId}-${assignment.source}`;
  const clientOwner = assignment === undefined ? [host] : [assignment.fleet, assignment.source];
  const idParts = [...clientOwner, name, prefix, ...(identity === undefined ? [] : [identity])];
  const digest = createHash("sha256").update(idParts.join("\n")).digest("hex").slice(0, 8);
  const readableName = assignment === undefined ? name : `${name}-${assignment.source}`;
  return `plenum-${readableName.replace(/[^A-Za-z0-9_.-]/g, "-").slice(0, 96)}-${digest}`;
}
