import { execFileSync } from "node:child_process";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type Server } from "node:https";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { errorText } from "#src/core/errors/errors.ts";
import { createHttpTransport } from "#src/engine/source/transport.ts";
import { temporaryFolder } from "../real-servers.ts";
import { failureOf, never, trialConfig } from "./trial-source.ts";

function hasOpenssl(): boolean {
  try {
    execFileSync("openssl", ["version"], { stdio: "ignore" });
    return true;
  } catch {
    if (process.env.CI === "true") throw new Error("openssl is not installed; .ci/run has to install it.");
    process.stderr.write("openssl is not installed here: the tests of certificates are skipped.\n");
    return false;
  }
}

const GET = { method: "GET", path: "/", headers: {}, body: null } as const;

describe.skipIf(!hasOpenssl())("certificates", () => {
  const folder = temporaryFolder("tls");
  const at = (name: string) => join(folder, name);
  const openssl = (...args: string[]) => execFileSync("openssl", args, { cwd: folder, stdio: "pipe" });
  const servers: Server[] = [];

  const command = (words: string, ...more: readonly string[]) => openssl(...words.split(" "), ...more);
  const NEW_KEY = "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";

  function authority(name: string) {
    command(`${NEW_KEY} -x509 -days 30 -subj /CN=${name} -keyout ${name}.key -out ${name}.pem`);
  }

  function certificate(name: string, by: string, subject: string, validity: readonly string[] = ["-days", "30"]) {
    command(`${NEW_KEY} -subj /CN=${name} -keyout ${name}.key -out ${name}.csr`);
    writeFileSync(at(`${name}.ext`), `subjectAltName=${subject}\n`);
    const issuer = `-CA ${by}.pem -CAkey ${by}.key -CAcreateserial`;
    command(`x509 -req -in ${name}.csr ${issuer} -extfile ${name}.ext -out ${name}.pem`, ...validity);
  }

  beforeAll(() => {
    authority("ours");
    authority("theirs");
    certificate("good", "ours", "IP:127.0.0.1");
    certificate("expired", "ours", "IP:127.0.0.1", ["-days", "-1"]);
    certificate("renamed", "ours", "DNS:other.example");
    certificate("fake", "theirs", "IP:127.0.0.1");
  });

  afterAll(() => {
    for (const server of servers) server.close().closeAllConnections();
    rmSync(folder, { recursive: true });
  });

  async function serving(name: string, options: object = {}) {
    const seen: string[] = [];
    const pair = { key: readFileSync(at(`${name}.key`)), cert: readFileSync(at(`${name}.pem`)) };
    const server = createServer({ ...pair, ...options }, (request, response) => {
      seen.push(request.url ?? "");
      response.end("{}");
    });
    servers.push(server);
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    return { seen, url: `https://127.0.0.1:${(server.address() as AddressInfo).port}` };
  }

  async function ask(url: string, ca_file: string | undefined) {
    const transport = createHttpTransport(trialConfig(url, ca_file === undefined ? {} : { ca_file }));
    try {
      return await transport.send(GET, never());
    } finally {
      await transport.close();
    }
  }

  it("accepts a certificate of the private authority in ca_file", async () => {
    const { url, seen } = await serving("good");
    expect(await ask(url, at("ours.pem"))).toMatchObject({ status: 200 });
    expect(seen).toEqual(["/"]);
  });

  it.each([
    ["expired", "ours.pem", "has expired"],
    ["renamed", "ours.pem", "is for another name"],
    ["fake", "ours.pem", "comes from an unknown authority"],
    ["good", undefined, "comes from an unknown authority"],
    ["theirs", "ours.pem", "is signed by itself"],
  ])("rejects the certificate %s with ca_file %s: %s", async (name, ca, fault) => {
    const { url, seen } = await serving(name);
    const failure = await failureOf(ask(url, ca === undefined ? undefined : at(ca)));
    expect(failure).toMatchObject({ kind: "config" });
    expect(errorText(failure)).toContain(`The certificate of ${url} ${fault}`);
    expect(failure).toHaveProperty("hint", expect.stringMatching(/\w/));
    expect(seen).toEqual([]);
  });

  it("rejects TLS below 1.2", async () => {
    const old = await serving("good", { minVersion: "TLSv1.1", maxVersion: "TLSv1.1", ciphers: "ALL@SECLEVEL=0" });
    expect(await failureOf(ask(old.url, at("ours.pem")))).toMatchObject({ kind: "config" });
    expect(old.seen).toEqual([]);
  });

  it("rejects an invalid ca_file before the first request", () => {
    writeFileSync(at("empty.pem"), "hello");
    const create = (ca_file: string) => () => createHttpTransport(trialConfig("https://service.example", { ca_file }));
    expect(create(at("empty.pem"))).toThrow("There is no certificate in ca_file");
    expect(create(at("missing.pem"))).toThrow("cannot be read");
  });
});
