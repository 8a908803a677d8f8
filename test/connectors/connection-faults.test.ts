import { readFileSync, rmSync } from "node:fs";
import { createServer as createHttpServer } from "node:http";
import { createServer } from "node:net";
import { createServer as createTlsServer } from "node:tls";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { InfluxConfig } from "#connectors/influxdb/config.ts";
import { createInfluxSink } from "#connectors/influxdb/sink.ts";
import { MqttConfig } from "#connectors/mqtt/config.ts";
import { createMqttSink } from "#connectors/mqtt/sink.ts";
import { WebhookConfig } from "#connectors/webhook/config.ts";
import { createWebhookSink } from "#connectors/webhook/sink.ts";
import type { Sink } from "#src/core/connector.ts";
import { asFailure, errorText, LocalFailure, Retryable } from "#src/core/errors/errors.ts";
import { connectionFailure } from "#src/core/http/connection-problem.ts";
import { createHttpTransport } from "#src/engine/source/transport.ts";
import { absent, freePort, startMosquitto, temporaryFolder } from "../real-servers.ts";
import { valueEvent } from "../sample-events.ts";
import { testConfig } from "../source/source-harness.ts";
import { closeAfterTest, stopAfterTest } from "../test-resources.ts";
import { contextFor, never } from "./context.ts";
import { type Authority, createAuthority, type Issued } from "./mqtt/certificates.ts";
import { listenTo } from "./stub-server.ts";

let folder: string;
let ownAuthority: Authority;
let foreignAuthority: Authority;
const certificates = new Map<string, Issued>();
beforeAll(() => {
  folder = temporaryFolder("faults");
  ownAuthority = createAuthority(folder, "ours");
  foreignAuthority = createAuthority(folder, "stranger");
  certificates.set("good", ownAuthority.issue("good"));
  certificates.set("expired", ownAuthority.issue("expired", { days: -1 }));
  certificates.set("for another name", ownAuthority.issue("renamed", { altName: "DNS:elsewhere.example" }));
  certificates.set("from an unknown authority", foreignAuthority.issue("fake"));
  const { caFile } = foreignAuthority;
  certificates.set("self-signed", { certFile: caFile, keyFile: caFile.replace(".pem", ".key") });
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

type Language = "http" | "mqtt";

const actors: readonly {
  readonly name: string;
  readonly language: Language;
  readonly attempt: (url: string) => Promise<unknown>;
}[] = [
  {
    name: "the source",
    language: "http",
    async attempt(url) {
      const config = testConfig(url, { ca_file: ownAuthority.caFile, allow_plain_http: true });
      const transport = closeAfterTest(createHttpTransport(config));
      return catchError(transport.send({ method: "GET", path: "/", headers: {}, body: null }, never()));
    },
  },
  {
    name: "webhook",
    language: "http",
    attempt(url) {
      const options = { unsigned: true, allow_networks: ["127.0.0.0/8"], ca_file: ownAuthority.caFile };
      const config = WebhookConfig.parse({ url: `${url}/`, ...options });
      return writeValue(createWebhookSink(config, contextFor("hook")));
    },
  },
  {
    name: "influxdb",
    language: "http",
    attempt(url) {
      const config = InfluxConfig.parse({ url, bucket: "b", ca_file: ownAuthority.caFile });
      return writeValue(createInfluxSink(config, contextFor("lake")));
    },
  },
  {
    name: "mqtt",
    language: "mqtt",
    attempt(url) {
      const tls = url.startsWith("mqtts:") ? { ca_file: ownAuthority.caFile } : {};
      const config = MqttConfig.parse({ url, tls });
      return writeValue(createMqttSink(config, contextFor("broker")));
    },
  },
];

interface Fault {
  readonly name: string;
  readonly kind: "config" | "retryable";
  readonly says: RegExp;
  readonly secure: boolean;
  readonly place: (language: Language) => Promise<string>;
}

const faults: readonly Fault[] = [
  tlsFault("a TLS connection to a port without TLS", "config", /does not speak TLS.*Check (base_)?url/, plainPort),
  {
    name: "an unencrypted connection to a TLS port",
    kind: "config",
    says: /speaks TLS, and was talked to without.*(https|mqtts):\/\//,
    secure: false,
    place: securePort,
  },
  certificateFault("expired", /has expired/),
  certificateFault("self-signed", /is signed by itself.*ca_file/),
  certificateFault("for another name", /is for another name.*url/),
  certificateFault("from an unknown authority", /comes from an unknown authority.*ca_file/),
  {
    name: "a refused connection",
    kind: "retryable",
    says: /refuses the connection \(ECONNREFUSED\).*url/,
    secure: false,
    place: async () => `127.0.0.1:${await freePort()}`,
  },
  tlsFault("an unknown host name", "retryable", /name/, async () => "nobody.invalid:443"),
  ...[true, false].map(
    (secure): Fault => ({
      name: `a server that closes every connection (${secure ? "TLS" : "plain"})`,
      kind: "retryable",
      says: /broke the connection|hung up|closed the connection/,
      secure,
      place: () =>
        listenTo(createServer((socket) => void socket.on("error", () => {}).once("data", () => socket.destroy()))),
    }),
  ),
];

describe.skipIf(absent("mosquitto"))("connection failures of the source and of sinks", () => {
  describe.each(actors)("$name", ({ language, attempt }) => {
    test.each(faults)("reports $name as a failure of kind $kind", async ({ kind, says, secure, place }) => {
      const error = await attempt(`${language}${secure ? "s" : ""}://${await place(language)}`);
      expect(error).toBeInstanceOf(Error);
      expect([asFailure(error).kind, errorText(error)]).toEqual([kind, expect.stringMatching(says)]);
    });
  });
});

test.each(actors.filter(({ name }) => name === "webhook" || name === "influxdb"))(
  "$name reports a wrong url and rejects no event when an HTTPS server answers plain HTTP with status 400",
  async ({ attempt }) => {
    const responseText = "Client sent an HTTP request to an HTTPS server.\n";
    const server = createHttpServer((_request, response) => void response.writeHead(400).end(responseText));
    expect(await attempt(`http://${await listenTo(server)}`)).toMatchObject({ kind: "config", field: "url" });
  },
);

const SERVER_INFO = {
  name: "https://there.example",
  failureText: "could not be asked",
  addressOption: "url",
  caOption: "ca_file",
  secureSetting: "https://",
  plaintextSetting: "http://",
} as const;

describe("the classification of error codes of OpenSSL, Node.js and undici", () => {
  test.each(["EMFILE", "ENFILE", "ENOMEM", "EADDRNOTAVAIL"])(
    "classifies %s as an error of this machine and as retryable",
    (code) => {
      const failure = connectionFailure(Object.assign(new Error("connect"), { code }), SERVER_INFO);
      expect(failure).toBeInstanceOf(LocalFailure);
      expect(failure).toBeInstanceOf(Retryable);
      expect(failure.message).toMatch(/because of this machine/);
    },
  );

  test.each([
    ["CERT_REVOKED", "config"],
    ["ERR_SSL_UNSUPPORTED_PROTOCOL", "config"],
    ["ERR_SSL_TLSV13_ALERT_CERTIFICATE_REQUIRED", "config"],
    ["ERR_SSL_TLSV1_ALERT_INTERNAL_ERROR", "retryable"],
    ["ERR_SSL_DECRYPTION_FAILED_OR_BAD_RECORD_MAC", "retryable"],
    ["EAI_AGAIN", "retryable"],
    ["UND_ERR_CONNECT_TIMEOUT", "retryable"],
    ["SOMETHING_NEW", "retryable"],
    ["HPE_INVALID_CONSTANT", "malformed"],
  ])("%s is classified as %s, also as a nested cause, and the message contains no request text", (code, kind) => {
    const codedError = Object.assign(new Error("GET /secret"), { code });
    const failure = connectionFailure(new Error("fetch failed", { cause: codedError }), SERVER_INFO);
    expect(failure.kind).toBe(kind);
    expect(errorText(failure)).toContain(code);
    expect(errorText(failure)).not.toContain("secret");
  });
});

function tlsFault(name: string, kind: Fault["kind"], says: RegExp, place: Fault["place"]): Fault {
  return { name, kind, says, secure: true, place };
}

function certificateFault(certificate: string, says: RegExp): Fault {
  return tlsFault(`a certificate that is ${certificate}`, "config", says, () => tlsWith(certificate));
}

async function plainPort(language: Language): Promise<string> {
  if (language === "http") return listenTo(createHttpServer((_request, response) => void response.end()));
  const server = stopAfterTest(await startMosquitto());
  return `127.0.0.1:${server.port}`;
}

async function securePort(language: Language): Promise<string> {
  if (language === "http") return tlsWith("good");
  const { certFile = "", keyFile = "" } = certificates.get("good") ?? {};
  const moreLines = [`certfile ${certFile}`, `keyfile ${keyFile}`];
  const server = stopAfterTest(await startMosquitto({ moreLines }));
  return `127.0.0.1:${server.port}`;
}

function tlsWith(name: string): Promise<string> {
  const { certFile = "", keyFile = "" } = certificates.get(name) ?? {};
  const server = createTlsServer({ cert: readFileSync(certFile), key: readFileSync(keyFile) });
  server.on("tlsClientError", (_error, socket) => socket.destroy());
  return listenTo(server);
}

function writeValue(sink: Sink): Promise<unknown> {
  closeAfterTest(sink);
  return catchError(sink.open(never()).then(() => sink.write([valueEvent(1)], never())));
}

const catchError = (work: Promise<unknown>): Promise<unknown> => work.catch((error: unknown) => error);
