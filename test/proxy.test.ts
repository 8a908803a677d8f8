import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { inspect } from "node:util";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { InfluxConfig } from "#connectors/influxdb/config.ts";
import { createInfluxSink } from "#connectors/influxdb/sink.ts";
import { WebhookConfig } from "#connectors/webhook/config.ts";
import { createWebhookSink } from "#connectors/webhook/sink.ts";
import type { Sink } from "#src/core/connector.ts";
import { asFailure, errorText } from "#src/core/errors/errors.ts";
import { openProxy, ProxyConfig } from "#src/core/http/proxy.ts";
import { systemClock } from "#src/core/runtime/clock.ts";
import { SourceConfig } from "#src/engine/source/config.ts";
import { createHttpTransport } from "#src/engine/source/transport.ts";
import { openHarness, simulatedServer } from "./cli/plenum.ts";
import { type ConnectProxyOptions, startConnectProxy } from "./connect-proxy.ts";
import { contextFor, never } from "./connectors/context.ts";
import { type Authority, createAuthority, type Issued } from "./connectors/mqtt/certificates.ts";
import { type StubServer, startStub } from "./connectors/stub-server.ts";
import { freePort, temporaryFolder } from "./real-servers.ts";
import { valueEvent } from "./sample-events.ts";
import { testConfig } from "./source/source-harness.ts";
import { closeAfterTest, stopAfterTest } from "./test-resources.ts";

const TOKEN = "token-that-nobody-else-shall-see";
const PASSWORD = "proxy:pass/word+of=our own";
const BASIC = `Basic ${Buffer.from(`plenum:${PASSWORD}`).toString("base64")}`;
let folder: string;
let ours: Authority;
let good: Issued;
const inFolder = (name: string) => join(folder, name);
const readText = (file: string) => readFileSync(file, "utf8");
const pairOf = ({ certFile, keyFile }: Issued) => ({ cert: readText(certFile), key: readText(keyFile) });
beforeAll(() => {
  folder = temporaryFolder("proxy");
  ours = createAuthority(folder, "ours");
  good = ours.issue("good");
  writeFileSync(inFolder("token"), TOKEN, { mode: 0o600 });
  writeFileSync(inFolder("password"), `${PASSWORD}\n`, { mode: 0o600 });
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const login = () => ({ username: "plenum", password: { file: inFolder("password") } });

type Attempt = (url: string, proxy: object, more?: object) => Promise<unknown>;

const actors: readonly { readonly name: string; readonly attempt: Attempt }[] = [
  {
    name: "the source",
    async attempt(url, proxy, more = {}) {
      const config = testConfig(url, { ca_file: ours.caFile, proxy, ...more });
      const transport = closeAfterTest(createHttpTransport(config, openProxy(config.proxy, systemClock)));
      const headers = { authorization: `Bearer ${TOKEN}` };
      return thrown(transport.send({ method: "GET", path: "/", headers, body: null }, never()));
    },
  },
  {
    name: "webhook",
    attempt(url, proxy, more = {}) {
      const headers = { Authorization: { file: inFolder("token") } };
      const own = { url: `${url}/`, unsigned: true, headers, allow_networks: ["127.0.0.0/8"] };
      const config = WebhookConfig.parse({ ...own, ca_file: ours.caFile, proxy, ...more });
      return written(createWebhookSink(config, contextFor("hook")));
    },
  },
  {
    name: "influxdb",
    attempt(url, proxy, more = {}) {
      const own = { url, bucket: "b", token: { file: inFolder("token") } };
      const config = InfluxConfig.parse({ ...own, ca_file: ours.caFile, proxy, ...more });
      return written(createInfluxSink(config, contextFor("lake")));
    },
  },
];

describe.each(actors)("$name through a proxy", ({ attempt }) => {
  const proxied = async (options: ConnectProxyOptions = {}) => {
    const far = await secure();
    const proxy = await startConnectProxy(options);
    return { far, proxy };
  };

  test("uses TLS with the server itself and sends the proxy's password only to the proxy", async () => {
    const { far, proxy } = await proxied({ credentials: () => `plenum:${PASSWORD}` });
    expect(await attempt(far.url, { url: proxy.url, ...login() })).toBeNull();
    expect(far.seen).toHaveLength(1);
    expect(far.seen[0]?.headers.authorization).toContain(TOKEN);
    expect(Object.keys(far.seen[0]?.headers ?? {}).filter((name) => name.startsWith("proxy-"))).toEqual([]);
    expect(proxy.requests.map(({ authority }) => authority)).toEqual([`127.0.0.1:${far.port}`]);
    expect(proxy.requests[0]?.headers["proxy-authorization"]).toBe(BASIC);
    expect(proxy.requests[0]?.headers.authorization).toBeUndefined();
    expect(proxy.inClear).toEqual([]);
    const passed = proxy.passed();
    // The first byte of a TLS handshake.
    expect(passed[0]).toBe(0x16);
    for (const word of [TOKEN, "HTTP/1.1", "tag-value", "authorization"]) {
      expect(passed.includes(word), word).toBe(false);
    }
  });

  test("checks the certificate of the server through the tunnel", async () => {
    const stranger = pairOf(createAuthority(folder, "stranger").issue("stranger-cert"));
    const far = await secure(stranger);
    const proxy = await startConnectProxy();
    const error = await attempt(far.url, { url: proxy.url });
    expect(error).toMatchObject({ kind: "config", field: "ca_file" });
    expect(errorText(error)).toContain(`The certificate of ${far.url} comes from an unknown authority`);
    expect(far.seen).toEqual([]);
  });

  test("encrypts the connection to an https proxy and checks its certificate", async () => {
    const byName = { tls: pairOf(ours.issue("named-proxy", { altName: "DNS:localhost" })) };
    const { far, proxy } = await proxied(byName);
    const url = proxy.url.replace("127.0.0.1", "localhost");
    expect(await attempt(far.url, { url, ca_file: ours.caFile, ...login() })).toBeNull();
    expect(proxy.requests[0]?.headers["proxy-authorization"]).toBe(BASIC);
    const wrongName = await attempt(far.url, { url: proxy.url, ca_file: ours.caFile, ...login() });
    expect(wrongName).toMatchObject({ kind: "config", field: "proxy.url" });
    const unknown = await attempt(far.url, { url, ...login() });
    expect(unknown).toMatchObject({ kind: "config", field: "proxy.ca_file" });
    expect(errorText(unknown)).toContain(`The certificate of the proxy ${url}`);
    expect(proxy.requests).toHaveLength(1);
  });
  const otherPassword = { credentials: () => "plenum:another" };
  const refused = "The proxy PROXY does not accept who we are (407).";
  const kerberos = "407 Who are you?\r\nProxy-Authenticate: Negotiate\r\nProxy-Authenticate: NTLM";

  test.each<[string, ConnectProxyOptions, boolean, string, string]>([
    ["rejects a password", otherPassword, true, "config", `${refused} Check proxy.username and proxy.password.`],
    ["requires a password", otherPassword, false, "config", `${refused} Give proxy.username and proxy.password.`],
    ["requires an unsupported authentication scheme", says(kerberos), true, "config", "neither NTLM nor Kerberos."],
    ["sends 403", says("403 Forbidden"), true, "config", "The proxy PROXY refuses to connect us to SERVER (403). Ask"],
    ["sends 502", says("502 Bad Gateway"), true, "retryable", "PROXY could not connect us to SERVER (502)."],
    ["speaks first", says("200 OK", "220 mail ESMTP"), true, "malformed", "says more than it was asked for."],
    ["hangs up", { respond: () => "" }, true, "retryable", "The proxy PROXY could not be reached: it broke"],
    ["does not respond with HTTP", { respond: () => "SSH-2.0-x\r\n\r\n" }, true, "malformed", "PROXY answered is"],
  ])("reports one sentence that names the proxy when the proxy %s", async (...[, options, known, kind, words]) => {
    const { far, proxy } = await proxied(options);
    const error = await attempt(far.url, { url: proxy.url, ...(known ? login() : {}) });
    const text = errorText(error);
    expect(text).not.toContain("\n");
    expect(text).toContain(proxy.url);
    expect(text.replaceAll(proxy.url, "PROXY").replaceAll(`127.0.0.1:${far.port}`, "SERVER")).toContain(words);
    // Another reason would mean that the server rejected its token.
    expect(error).toMatchObject(kind === "config" ? { kind, reason: "settings" } : { kind });
    expect(far.connections).toBe(0);
    const inspected = inspect(error, { depth: 9 });
    for (const secret of [PASSWORD, BASIC.slice(6), TOKEN]) expect(inspected).not.toContain(secret);
  });

  test("reports an unreachable proxy and never connects directly", async () => {
    const far = await secure();
    const url = `http://127.0.0.1:${await freePort()}`;
    const error = await attempt(far.url, { url });
    expect(asFailure(error).kind).toBe("retryable");
    expect(errorText(error)).toBe(
      `The proxy ${url} could not be reached: it refuses the connection (ECONNREFUSED). If that stays so, check whether it is running, and the port in proxy.url.`,
    );
    expect(far.connections).toBe(0);
  });

  test("times out if the proxy accepts the connection but sends no response", async () => {
    const far = await secure();
    const port = await freePort();
    const silent = createServer((socket) => void socket.on("error", () => socket.destroy())).listen(port, "127.0.0.1");
    onTestFinished(() => void silent.close());
    const shortTimeout = attempt === actors[0]?.attempt ? { deadlines: { connect_ms: 300 } } : { timeout: "300ms" };
    const error = await attempt(far.url, { url: `http://127.0.0.1:${port}` }, shortTimeout);
    expect(asFailure(error).kind).toBe("retryable");
    expect(far.connections).toBe(0);
  });

  test("uses a new password from the file for the next connection", async () => {
    let wanted = "plenum:an older one";
    const { far, proxy } = await proxied({ credentials: () => wanted });
    const settings = { url: proxy.url, username: "plenum", password: { file: inFolder("exchanged") } };
    writeFileSync(inFolder("exchanged"), "an older one", { mode: 0o600 });
    expect(await attempt(far.url, settings)).toBeNull();
    wanted = "plenum:a newer one";
    expect(await attempt(far.url, settings)).toMatchObject({ kind: "config" });
    writeFileSync(inFolder("exchanged"), "a newer one");
    expect(await attempt(far.url, settings)).toBeNull();
  });
});

describe.each(actors.filter(({ name }) => name !== "webhook"))("$name over http:// through a proxy", ({ attempt }) => {
  const plainly = { allow_plain_http: true };

  test("uses a tunnel for plain HTTP, too, when plain HTTP is allowed", async () => {
    const far = stopAfterTest(await startStub());
    const proxy = await startConnectProxy();
    expect(await attempt(far.url, { url: proxy.url }, plainly)).toBeNull();
    expect(proxy.requests.map(({ authority }) => authority)).toEqual([`127.0.0.1:${far.port}`]);
    expect(proxy.inClear).toEqual([]);
  });

  test("probes TLS through the proxy only", async () => {
    const far = await secure();
    const proxy = await startConnectProxy();
    const error = await attempt(far.url.replace("https:", "http:"), { url: proxy.url }, plainly);
    expect(errorText(error)).toMatch(/speaks TLS, and was talked to without/);
    expect(far.connections).toBe(2);
    expect(proxy.requests).toHaveLength(2);
  });
});

test("the transport reuses connections through a proxy", async () => {
  const far = await secure();
  const proxy = await startConnectProxy();
  const config = testConfig(far.url, { ca_file: ours.caFile, proxy: { url: proxy.url } });
  const transport = closeAfterTest(createHttpTransport(config, openProxy(config.proxy, systemClock)));
  const paths = ["/a", "/b", "/c", "/d", "/e"];
  for (const path of paths) await transport.send({ method: "GET", path, headers: {}, body: null }, never());
  expect(far.seen.map(({ url }) => url)).toEqual(paths);
  expect(proxy.requests.length).toBeLessThanOrEqual(2);
});

describe("the webhook sink through a proxy", () => {
  const lookups: string[] = [];
  const sinkFor = (url: string, proxy: string) =>
    createWebhookSink(
      WebhookConfig.parse({ url, unsigned: true, timeout: "2s", ca_file: ours.caFile, proxy: { url: proxy } }),
      contextFor("hook"),
      (host, _options, done) => {
        lookups.push(host);
        done(null, [{ address: "93.184.216.34", family: 4 }]);
      },
    );

  test.each([
    ...["127.0.0.1", "2130706433", "10.0.0.1", "169.254.169.254"],
    ...["[::1]", "localhost", "LOCALHOST.", "a.localhost"],
  ])("rejects https://%s before it connects to the proxy", async (host) => {
    const proxy = await startConnectProxy();
    const sink = closeAfterTest(sinkFor(`https://${host}/hook`, proxy.url));
    await expect(sink.write([valueEvent(1)], never())).rejects.toMatchObject({ kind: "config", field: "url" });
    await expect(sink.probe?.(never())).rejects.toMatchObject({ kind: "config", field: "url" });
    expect(proxy.connections).toBe(0);
  });

  test("sends a host name to the proxy without resolving it", async () => {
    const far = await secure(pairOf(ours.issue("hook", { altName: "DNS:hook.example" })));
    const proxy = await startConnectProxy({ hosts: { "hook.example:443": `127.0.0.1:${far.port}` } });
    const sink = closeAfterTest(sinkFor("https://hook.example/hook", proxy.url));
    await sink.probe?.(never());
    expect(await sink.write([valueEvent(1)], never())).toEqual({ rejected: [] });
    expect(proxy.requests.map(({ authority }) => authority)).toEqual(["hook.example:443", "hook.example:443"]);
    expect(far.seen).toHaveLength(1);
    expect(lookups).toEqual([]);
  });
});

describe("the proxy settings", () => {
  const url = "http://proxy.example.com:3128";
  const password = { env: "P" };

  test.each([
    [{ url: "http://plenum:geheim@proxy.example.com:3128" }, /^Take the user name and password out of the address/],
    [{ url: "socks5://proxy.example.com" }, /^Write the address of the proxy as http:\/\/host:port/],
    [{ url: `${url}/path` }, /^The address must end with the port/],
    [{ url, username: "plenum" }, /^Give username and password together/],
    [{ url, username: "plen:um", password, allow_plain_http: true }, /^A user name has neither/],
    [{ url, username: "plenum", password }, /^A password needs https:\/\/; set allow_plain_http: true/],
    [{ url, pasword: password }, /^Unrecognized key/],
  ])("reject %j", (settings, words) => {
    const { error } = ProxyConfig.safeParse(settings);
    expect(error?.issues.map(({ message }) => message)).toEqual([expect.stringMatching(words)]);
    expect(JSON.stringify(error?.issues)).not.toContain("geheim");
  });

  test("accept a password over http:// on loopback or with allow_plain_http", () => {
    const credentials = { username: "plenum", password };
    for (const settings of [
      { url: "http://127.0.0.1:3128", ...credentials },
      { url, ...credentials, allow_plain_http: true },
      { url: "https://proxy.example.com", ...credentials },
      { url },
    ]) {
      expect(ProxyConfig.safeParse(settings).success, JSON.stringify(settings)).toBe(true);
    }
  });

  test("make a loopback http:// address invalid, because the proxy would receive the token", () => {
    const loopbackUrl = "http://127.0.0.1:8086";
    const source = { base_url: loopbackUrl, token: password, time_zone: "Europe/Oslo" };
    const influx = { url: loopbackUrl, bucket: "b", token: password };
    const hook = { url: "http://10.0.0.1/", unsigned: true, allow_networks: ["10.0.0.0/8"] };
    for (const [schema, settings] of [
      [SourceConfig, source],
      [InfluxConfig, influx],
      [WebhookConfig, hook],
    ] as const) {
      expect(schema.safeParse(settings).success).toBe(true);
      const { error } = schema.safeParse({ ...settings, proxy: { url } });
      expect(error?.issues.map(({ path }) => path.join("."))).toEqual([expect.stringMatching(/^(base_)?url$/)]);
    }
  });
});

test("the worker uses the configured proxy and ignores proxies of the environment", async () => {
  const decoy = await startConnectProxy();
  const proxy = await startConnectProxy({ credentials: () => "plenum:from the environment" });
  const far = await secure();
  const service = await simulatedServer();
  const names = ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY"];
  const place = openHarness(service.url, {
    ...Object.fromEntries(names.map((name) => [name, decoy.url])),
    ...{ NODE_USE_ENV_PROXY: "1", PROXY_PASSWORD: "from the environment" },
  });
  const through = { proxy: { url: proxy.url, username: "plenum", password: { env: "PROXY_PASSWORD" } } };
  const trusted = { ca_file: ours.caFile };
  place.configure({
    sources: {
      main: {
        ...{ base_url: service.url, allow_plain_http: true, token: { file: "token" }, time_zone: "Europe/Oslo" },
        ...through,
      },
    },
    sinks: {
      lake: { influxdb: { url: far.url, bucket: "b", ...trusted, ...through } },
      hook: { webhook: { url: far.url, unsigned: true, allow_networks: ["127.0.0.0/8"], ...trusted, ...through } },
    },
  });
  const { code, stdout, stderr } = await place.plenum("check", "--json");
  expect(code, `${stdout}${stderr}`).toBe(0);
  expect(decoy.connections).toBe(0);
  const authorities = new Set(proxy.requests.map(({ authority }) => authority));
  expect(authorities).toEqual(new Set([new URL(service.url).host, new URL(far.url).host]));
  expect(far.connections).toBe(proxy.requests.filter(({ authority }) => far.url.endsWith(authority)).length);
});

async function secure(tls = pairOf(good)): Promise<StubServer> {
  return stopAfterTest(await startStub({ tls }));
}

function says(head: string, behind = ""): ConnectProxyOptions {
  return { respond: () => `HTTP/1.1 ${head}\r\n\r\n${behind}` };
}

function written(sink: Sink): Promise<unknown> {
  onTestFinished(() => sink.close());
  return thrown(sink.open(never()).then(() => sink.write([valueEvent(1)], never())));
}

async function thrown(work: Promise<unknown>): Promise<unknown> {
  return work.then(() => null).catch((error: unknown) => error);
}
