import { isIP } from "node:net";
import {
  type ConnectionOptions,
  type SASLCustomAuthenticator,
  type SASLOptions,
  saslScramSha,
} from "@platformatic/kafka";
import { VERIFIED_TLS } from "../../src/core/http/verified-tls.ts";
import type { Clock } from "../../src/core/runtime/clock.ts";
import { cachedSecret, readCertificates } from "../../src/core/runtime/secret.ts";
import type { KafkaConfig } from "./config.ts";

/** Beyond the time in which the brokers have to answer themselves, so that their word arrives, in milliseconds. */
const ON_THE_WAY_MS = 1_000;

/** Files and secrets are read anew for each connection, so that renewed ones need no restart. */
export function connectionOptions(config: KafkaConfig, clock: Clock): (host: string) => ConnectionOptions {
  const { sasl, tls } = config;
  const password = sasl === undefined ? null : cachedSecret(sasl.password, clock);
  return (host) => ({
    connectTimeout: config.connect_deadline,
    requestTimeout: config.publish_deadline + ON_THE_WAY_MS,
    maxInflights: 1,
    ...(tls.enabled
      ? {
          tls: {
            ...VERIFIED_TLS,
            ...(tls.ca_file === undefined ? {} : { ca: pem(tls.ca_file) }),
            ...(tls.cert_file === undefined ? {} : { cert: pem(tls.cert_file) }),
            ...(tls.key_file === undefined ? {} : { key: pem(tls.key_file) }),
          },
          // Several brokers behind one address are told apart by it; an IP address may not stand there (RFC 6066).
          ...(isIP(host) === 0 ? { tlsServerName: host } : {}),
        }
      : {}),
    ...(sasl === undefined || password === null ? {} : { sasl: saslOptions(sasl, password().reveal()) }),
  });
}

function saslOptions(
  { mechanism, username }: NonNullable<KafkaConfig["sasl"]>,
  password: string,
): SASLOptions {
  return {
    mechanism,
    username,
    password,
    ...(mechanism === "PLAIN" ? {} : { authenticate: byScram }),
  };
}

/**
 * The library's SCRAM. It reads a broker's words where nobody catches what it throws, so that a broker that answers
 * nonsense would end the worker; here that is a failed authentication.
 */
const byScram: SASLCustomAuthenticator = (mechanism, connection, ask, username, password, _token, done) => {
  const guarded = (...[to, bytes, answered]: Parameters<typeof ask>) =>
    ask(to, bytes, (error, answer) => {
      try {
        answered?.(error, answer);
      } catch (thrown) {
        done(thrown instanceof Error ? thrown : new Error(String(thrown)));
      }
    });
  const algorithm = mechanism === "SCRAM-SHA-256" ? "SHA-256" : "SHA-512";
  const authenticate = Object.assign(guarded, { async: ask.async, key: ask.key, version: ask.version });
  const { defaultCrypto } = saslScramSha;
  saslScramSha.authenticate(
    authenticate,
    connection,
    algorithm,
    username ?? "",
    password ?? "",
    defaultCrypto,
    done,
  );
};

function pem(path: string): string {
  return readCertificates(path, "tls");
}
