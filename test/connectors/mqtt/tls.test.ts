import { execFileSync } from "node:child_process";
import { chmodSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Sink } from "#src/core/connector.ts";
import { ConfigError, errorText } from "#src/core/errors/errors.ts";
import { absent, freePort, temporaryFolder } from "../../real-servers.ts";
import { catchFailure, secretFile } from "../../receivers/receiver-helpers.ts";
import { valueEvent } from "../../sample-events.ts";
import { never } from "../context.ts";
import { type Authority, createAuthority, type Issued } from "./certificates.ts";
import { observeInTest } from "./observer.ts";
import { createTestSink, startMosquittoInTest } from "./test-sink.ts";

let folder: string;
let authority: Authority;
let goodCertificate: Issued;
beforeAll(() => {
  folder = temporaryFolder("certificates");
  authority = createAuthority(folder);
  goodCertificate = authority.issue("good");
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

async function brokerWith(issued: Issued, extra: readonly string[] = []) {
  const securePort = await freePort();
  const server = await startMosquittoInTest({
    lines: (port) => [
      "per_listener_settings true",
      `listener ${port} 127.0.0.1`,
      "allow_anonymous true",
      `listener ${securePort} 127.0.0.1`,
      `cafile ${authority.caFile}`,
      `certfile ${issued.certFile}`,
      `keyfile ${issued.keyFile}`,
      ...(extra.length === 0 ? ["allow_anonymous true"] : extra),
    ],
  });
  const observer = await observeInTest(server.url, "#");
  return { url: `mqtts://127.0.0.1:${securePort}`, observer };
}

async function delivers(sink: Sink): Promise<void> {
  await sink.open(never());
  expect(await sink.write([valueEvent(1)], never())).toEqual({ rejected: [] });
}

describe.skipIf(absent("mosquitto"))("TLS of the MQTT sink", () => {
  test("accepts a certificate for the name in servername", async () => {
    const { url } = await brokerWith(authority.issue("named", { altName: "DNS:broker.example" }));
    const sink = createTestSink(url, { tls: { ca_file: authority.caFile, servername: "broker.example" } });
    await delivers(sink);
  });

  test("sends the configured client certificate, and reports a ConfigError if a required one is missing", async () => {
    const { url } = await brokerWith(goodCertificate, ["require_certificate true", "use_identity_as_username true"]);
    const ownCertificate = authority.issue("worker");
    const tls = { ca_file: authority.caFile, cert_file: ownCertificate.certFile, key_file: ownCertificate.keyFile };
    const sink = createTestSink(url, { tls });
    await delivers(sink);
    const withoutCertificate = createTestSink(url, { tls: { ca_file: authority.caFile } });
    await expect(withoutCertificate.open(never())).rejects.toBeInstanceOf(ConfigError);
  });

  test("delivers to a Mosquitto that runs with the example configuration", async () => {
    const example = readFileSync(join(import.meta.dirname, "../../../connectors/mqtt/mosquitto.example.conf"), "utf8");
    const acl = join(import.meta.dirname, "../../../connectors/mqtt/acl.example");
    const passwords = join(folder, "example-passwords");
    writeFileSync(passwords, "");
    execFileSync("mosquitto_passwd", ["-b", passwords, "plenum", "pw"], { stdio: "ignore" });
    const server = await startMosquittoInTest({
      lines: (port, data) =>
        example
          .replace("listener 8883", `listener ${port} 127.0.0.1`)
          .replace("/etc/mosquitto/tls/ca.pem", authority.caFile)
          .replace("/etc/mosquitto/tls/server.pem", goodCertificate.certFile)
          .replace("/etc/mosquitto/tls/server.key", goodCertificate.keyFile)
          .replace("/etc/mosquitto/passwords", passwords)
          .replace("/etc/mosquitto/plenum.acl", acl)
          .replace("/var/lib/mosquitto/", `${data}/`)
          .split("\n"),
    });
    const login = { username: "plenum", password: secretFile("pw") };
    await delivers(
      createTestSink(server.url.replace("mqtt:", "mqtts:"), { tls: { ca_file: authority.caFile }, ...login }),
    );
  });

  test("never prints the password, and uses a changed password for the next connection", async () => {
    const passwords = join(folder, "passwords");
    writeFileSync(passwords, "", { mode: 0o600 });
    execFileSync("mosquitto_passwd", ["-b", passwords, "plenum", "right-secret"], { stdio: "ignore" });
    chmodSync(passwords, 0o644);
    const { url } = await brokerWith(goodCertificate, ["allow_anonymous false", `password_file ${passwords}`]);
    const password = secretFile("wrong-secret\n");
    const sink = createTestSink(url, { tls: { ca_file: authority.caFile }, username: "plenum", password });
    const error = await catchFailure(sink.open(never()));
    expect(error).toBeInstanceOf(ConfigError);
    expect(JSON.stringify([errorText(error), error])).not.toContain("wrong-secret");
    writeFileSync(password.file, "right-secret\n");
    await delivers(sink);
  });
});
