import { afterEach, beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { InfluxConfig } from "#connectors/influxdb/config.ts";
import { createInfluxSink } from "#connectors/influxdb/sink.ts";
import { MqttConfig } from "#connectors/mqtt/config.ts";
import { createMqttSink } from "#connectors/mqtt/sink.ts";
import { WebhookConfig } from "#connectors/webhook/config.ts";
import { createWebhookSink } from "#connectors/webhook/sink.ts";
import type { Sink } from "#src/core/connector.ts";
import { probeTlsHandshake } from "#src/core/http/connection-problem.ts";
import { refuseUnverifiedTls } from "#src/core/http/verified-tls.ts";
import { createHttpTransport } from "#src/engine/source/transport.ts";
import { certificateFor } from "./connectors/certificate.ts";
import { contextFor } from "./connectors/context.ts";
import { startStub } from "./connectors/stub-server.ts";
import { valueEvent } from "./sample-events.ts";
import { testConfig } from "./source/source-harness.ts";
import { closeAfterTest, stopAfterTest } from "./test-resources.ts";

const SELF_SIGNED = certificateFor("localhost");
const signal = () => new AbortController().signal;

describe("connections to a self-signed server with NODE_TLS_REJECT_UNAUTHORIZED=0", () => {
  let earlierValue: string | undefined;
  beforeEach(() => {
    earlierValue = process.env.NODE_TLS_REJECT_UNAUTHORIZED;
    process.env.NODE_TLS_REJECT_UNAUTHORIZED = "0";
  });
  afterEach(() => {
    if (earlierValue === undefined) delete process.env.NODE_TLS_REJECT_UNAUTHORIZED;
    else process.env.NODE_TLS_REJECT_UNAUTHORIZED = earlierValue;
  });

  async function startSelfSigned() {
    const stub = stopAfterTest(await startStub({ tls: SELF_SIGNED }));
    return { stub, url: stub.url.replace("127.0.0.1", "localhost") };
  }

  async function expectRefused(sink: Sink) {
    onTestFinished(() => sink.close());
    await expect(sink.open(signal()).then(() => sink.write([valueEvent(1)], signal()))).rejects.toMatchObject({
      kind: "config",
      message: expect.stringContaining("is signed by itself"),
    });
    await expect(sink.probe?.(signal())).rejects.toMatchObject({ kind: "config" });
  }

  test("fail for the service before a request is sent", async () => {
    const { stub, url } = await startSelfSigned();
    const transport = closeAfterTest(createHttpTransport(testConfig(url)));
    const request = { method: "GET", path: "/", headers: { authorization: "Bearer x" }, body: null } as const;
    await expect(transport.send(request, signal())).rejects.toMatchObject({ kind: "config" });
    expect(stub.seen).toEqual([]);
  });

  test("fail for InfluxDB, webhook and broker before a request is sent", async () => {
    const { stub, url } = await startSelfSigned();
    const common = { url, allow_networks: ["127.0.0.0/8", "::1/128"] };
    await expectRefused(createInfluxSink(InfluxConfig.parse({ url, bucket: "b" }), contextFor("lake")));
    await expectRefused(createWebhookSink(WebhookConfig.parse({ ...common, unsigned: true }), contextFor("hook")));
    const broker = MqttConfig.parse({ url: url.replace("https:", "mqtts:") });
    await expectRefused(createMqttSink(broker, contextFor("broker")));
    expect(stub.seen).toEqual([]);
  });

  test("fail for a TLS handshake without a request, with an error about the certificate", async () => {
    const { stub } = await startSelfSigned();
    await expect(probeTlsHandshake({ host: "localhost", port: stub.port }, signal())).rejects.toMatchObject({
      code: "DEPTH_ZERO_SELF_SIGNED_CERT",
    });
  });
});

describe("refuseUnverifiedTls", () => {
  test.each([
    [{ NODE_TLS_REJECT_UNAUTHORIZED: "0" }, []],
    [{ NODE_OPTIONS: "--max-old-space-size=200 --tls-keylog=/tmp/keys" }, []],
    [{ NODE_OPTIONS: "--trace_tls" }, []],
    [{}, ["--tls-keylog=keys"]],
  ])("throws for the environment %j with the Node.js options %j", (environment, options) => {
    expect(() => refuseUnverifiedTls(environment, options)).toThrow(
      expect.objectContaining({ kind: "config", hint: expect.stringMatching(/^Take /) }),
    );
  });

  test.each([
    {},
    { NODE_TLS_REJECT_UNAUTHORIZED: "1" },
    { NODE_TLS_REJECT_UNAUTHORIZED: "" },
    { NODE_OPTIONS: "--tls-min-v1.0 --no-trace-tls" },
  ])("accepts the environment %j", (environment) => {
    expect(() => refuseUnverifiedTls(environment, [])).not.toThrow();
  });
});
