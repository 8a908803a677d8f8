import type { LookupAddress } from "node:dns";
import { isIP } from "node:net";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { WebhookConfig } from "#connectors/webhook/config.ts";
import { createWebhookSink } from "#connectors/webhook/sink.ts";
import type { DnsLookup } from "#src/core/http/outbound/guard.ts";
import { createIpNetworkRules, parseIpNetwork } from "#src/core/http/outbound/ip-network-ranges.ts";
import { expectFailure } from "../receivers/receiver-helpers.ts";
import { valueEvent } from "../sample-events.ts";
import { closeAfterTest, stopAfterTest } from "../test-resources.ts";
import { certificateFor } from "./certificate.ts";
import { contextFor, never } from "./context.ts";
import { type StubServer, startStub } from "./stub-server.ts";

let stub: StubServer;
beforeAll(async () => {
  stub = await startStub({ host: "0.0.0.0" });
});
afterAll(() => stub.stop());

const HOSTS = `
  127.0.0.1 127.1 127.0.1 127.255.255.254 2130706433 0x7f000001 0x7f.0x0.0x0.0x1 017700000001 0177.0.0.1 127.0.0.1.
  127.0.0.0x1 １２７.０.０.１ 127。0。0。1 0 0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 0xa.1 100.64.0.1 100.127.255.255
  169.254.169.254 0xa9fea9fe 2852039166 169.254.0.1 172.16.0.1 172.31.255.255 192.0.0.1 192.0.2.1 192.88.99.1 192.168.0.1
  198.18.0.1 198.19.255.255 198.51.100.1 203.0.113.1 224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255
  [::] [::1] [0:0:0:0:0:0:0:1] [::127.0.0.1] [::ffff:127.0.0.1] [::ffff:7f00:1] [::ffff:10.0.0.1] [64:ff9b::7f00:1]
  [64:ff9b:1::1] [100::1] [2001::1] [2001:2::1] [2001:db8::1] [2002:7f00:1::] [3fff::1] [fc00::1] [fd00:ec2::254]
  [fe80::1] [fec0::1] [ff02::1] localhost localhost. LOCALHOST inside.example mixed.example`;

const NAMES: Readonly<Record<string, readonly string[]>> = {
  localhost: ["127.0.0.1", "::1"],
  "inside.example": ["192.168.1.10"],
  "mixed.example": ["93.184.216.34", "127.0.0.1"],
};

describe("webhooks to private addresses", () => {
  test.each(
    HOSTS.trim()
      .split(/\s+/)
      .flatMap((host) => [`https://${host}:PORT/hook`, `http://${host}:PORT/hook`]),
  )("no connection is opened to %s", async (form) => {
    const connectionsBefore = stub.connections;
    const sink = createSink(form.replace("PORT", String(stub.port)), {}, createLookup(NAMES));
    const error: unknown = await sink.write([valueEvent(1)], never()).catch((error: unknown) => error);
    expect(error).toMatchObject({ kind: "config", field: "url" });
    await expect(sink.probe?.(never())).rejects.toMatchObject({ kind: "config" });
    expect(stub.connections).toBe(connectionsBefore);
  });

  test.each([
    "ftp://example.com/",
    "file:///etc/passwd",
    "gopher://127.0.0.1/",
    "https://user:password@example.com/",
    "https://user@127.0.0.1/",
    "//127.0.0.1/",
    "127.0.0.1",
    "javascript:alert(1)",
    "https://",
  ])("the configuration refuses the URL %s", (url) => {
    expect(WebhookConfig.safeParse({ url, unsigned: true }).success).toBe(false);
  });

  test("a write is refused when the host name resolves to a private address at the second connection", async () => {
    const dnsReplies = [["127.0.0.2"], ["127.0.0.1"]];
    let lookups = 0;
    const movingLookup: DnsLookup = (_host, _options, done) => done(null, addresses(dnsReplies[lookups++] ?? []));
    const sink = createSink(`http://moving.example:${stub.port}/`, { allow_networks: ["127.0.0.2/32"] }, movingLookup);
    await sink.write([valueEvent(1)], never());
    const { connections } = stub;
    await sink.close();
    await expect(sink.write([valueEvent(2)], never())).rejects.toMatchObject({ kind: "config" });
    expect(lookups).toBe(2);
    expect(stub.connections).toBe(connections);
  });

  test.each(["http://public.example/", "http://93.184.216.34/"])(
    "%s is refused because the connection would not be encrypted",
    async (url) => {
      const sink = createSink(url, {}, createLookup({ "public.example": ["93.184.216.34"] }));
      const message = `${new URL(url).origin} is not encrypted.`;
      await expectFailure(sink.write([valueEvent(1)], never()), { kind: "config", message });
    },
  );

  test("private addresses are allowed only within allow_networks, and public addresses always", () => {
    const networkRules = createIpNetworkRules(["10.20.0.0/16", "fd12::/16"]);
    for (const address of ["93.184.216.34", "2606:4700::1111", "10.20.3.4", "fd12::7"])
      expect(networkRules.isPublicOrAllowed(address), address).toBe(true);
    for (const address of ["10.21.0.1", "fd13::1", "127.0.0.1", "example.com", ""])
      expect(networkRules.isPublicOrAllowed(address), address).toBe(false);
    expect(networkRules.isAllowed("93.184.216.34")).toBe(false);
  });

  test.each(["10.0.0.1", "10.0.0.0/33", "::/129", "a/8", "10.0.0.0/", "300.0.0.0/8"])(
    "the text %s is refused as an entry of allow_networks",
    (text) => {
      expect(parseIpNetwork(text)).toBeNull();
    },
  );
});

describe("webhooks with HTTPS", () => {
  const { key, cert, path } = certificateFor("hook.example");
  const names = createLookup({ "hook.example": ["127.0.0.1"], "other.example": ["127.0.0.1"] });
  const allowed = { allow_networks: ["127.0.0.0/8"] };

  test("trust only a configured private certificate authority", async () => {
    const secure = stopAfterTest(await startStub({ tls: { key, cert } }));
    const url = `https://hook.example:${secure.port}/`;
    const trusting = createSink(url, { ...allowed, ca_file: path }, names);
    await trusting.probe?.(never());
    expect(await trusting.write([valueEvent(1)], never())).toEqual({ rejected: [] });
    const noCa = createSink(url, allowed, names);
    await expect(noCa.write([valueEvent(1)], never())).rejects.toMatchObject({ kind: "config", field: "ca_file" });
    const wrongName = createSink(url.replace("hook.", "other."), { ...allowed, ca_file: path }, names);
    await expect(wrongName.write([valueEvent(1)], never())).rejects.toThrow("ERR_TLS_CERT_ALTNAME_INVALID");
    expect(secure.seen).toHaveLength(1);
  });
});

function createSink(url: string, options: Record<string, unknown>, lookup: DnsLookup) {
  const config = WebhookConfig.parse({ url, unsigned: true, timeout: "2s", ...options });
  return closeAfterTest(createWebhookSink(config, contextFor("hook"), lookup));
}

function createLookup(names: Readonly<Record<string, readonly string[]>>): DnsLookup {
  return (host, _options, done) => {
    const foundAddresses = names[host.toLowerCase().replace(/\.$/, "")];
    if (foundAddresses === undefined) done(Object.assign(new Error("not found"), { code: "ENOTFOUND" }), []);
    else done(null, addresses(foundAddresses));
  };
}

function addresses(found: readonly string[]): LookupAddress[] {
  return found.map((address) => ({ address, family: isIP(address) }));
}
