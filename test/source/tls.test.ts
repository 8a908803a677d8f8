import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { errorText } from "#src/core/errors/errors.ts";
import { createHttpTransport } from "#src/engine/source/transport.ts";
import { createAuthority } from "../connectors/mqtt/certificates.ts";
import { startStub } from "../connectors/stub-server.ts";
import { temporaryFolder } from "../real-servers.ts";
import { closeAfterTest, stopAfterTest } from "../test-resources.ts";
import { errorOf, never, testConfig } from "./source-harness.ts";

const GET = { method: "GET", path: "/", headers: {}, body: null } as const;

describe("certificates", () => {
  const folder = temporaryFolder("tls");
  const at = (name: string) => join(folder, name);

  beforeAll(() => {
    const ours = createAuthority(folder, "ours");
    ours.issue("good");
    ours.issue("expired", { days: -1 });
    ours.issue("renamed", { altName: "DNS:other.example" });
    createAuthority(folder, "theirs").issue("fake");
  });
  afterAll(() => rmSync(folder, { recursive: true }));

  async function serving(name: string, options: object = {}) {
    const [key, cert] = [readFileSync(at(`${name}.key`), "utf8"), readFileSync(at(`${name}.pem`), "utf8")];
    return stopAfterTest(await startStub({ tls: { key, cert, ...options } }));
  }

  const ask = (url: string, ca_file: string | undefined) =>
    closeAfterTest(createHttpTransport(testConfig(url, { ca_file }))).send(GET, never());

  it("accepts a certificate of the private authority in ca_file", async () => {
    const { url, seen } = await serving("good");
    expect(await ask(url, at("ours.pem"))).toMatchObject({ status: 204 });
    expect(seen.map((request) => request.url)).toEqual(["/"]);
  });

  it.each([
    ["expired", "ours.pem", "has expired"],
    ["renamed", "ours.pem", "is for another name"],
    ["fake", "ours.pem", "comes from an unknown authority"],
    ["good", undefined, "comes from an unknown authority"],
    ["theirs", "ours.pem", "is signed by itself"],
  ])("rejects the certificate %s with ca_file %s because it %s", async (name, ca, fault) => {
    const { url, seen } = await serving(name);
    const failure = await errorOf(ask(url, ca === undefined ? undefined : at(ca)));
    expect(failure).toMatchObject({ kind: "config" });
    expect(errorText(failure)).toContain(`The certificate of ${url} ${fault}`);
    expect(failure).toHaveProperty("hint", expect.stringMatching(/\w/));
    expect(seen).toEqual([]);
  });

  it("rejects TLS below 1.2", async () => {
    const old = await serving("good", { minVersion: "TLSv1.1", maxVersion: "TLSv1.1", ciphers: "ALL@SECLEVEL=0" });
    expect(await errorOf(ask(old.url, at("ours.pem")))).toMatchObject({ kind: "config" });
    expect(old.seen).toEqual([]);
  });

  it("rejects an invalid ca_file before the first request", () => {
    writeFileSync(at("empty.pem"), "hello");
    const create = (ca_file: string) => () => createHttpTransport(testConfig("https://service.example", { ca_file }));
    expect(create(at("empty.pem"))).toThrow("There is no certificate in ca_file");
    expect(create(at("missing.pem"))).toThrow("cannot be read");
  });
});
