import { createServer, type RequestListener, type ServerResponse } from "node:http";
import { type AddressInfo, createServer as createTcpServer, type Server, type Socket } from "node:net";
import { setImmediate } from "node:timers/promises";
import { gzipSync } from "node:zlib";
import { describe, expect, it, onTestFinished } from "vitest";
import { createHttpTransport, StaleSocket, type TransportRequest } from "#src/engine/source/transport.ts";
import { closeAfterTest } from "../test-resources.ts";
import { CALLS, errorOf, never, openHarness, tagRecord, testConfig } from "./source-harness.ts";

async function listening(server: Server): Promise<string> {
  const sockets = new Set<Socket>();
  server.on("connection", (socket: Socket) => {
    sockets.add(socket);
    socket.on("error", () => sockets.delete(socket)).on("close", () => sockets.delete(socket));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

const service = (listener: RequestListener) => listening(createServer({ keepAliveTimeout: 60_000 }, listener));

function raw(bytes: (request: number) => string | Buffer, end: (socket: Socket) => void = (socket) => socket.end()) {
  let requests = 0;
  return listening(
    createTcpServer((socket) => {
      socket.on("error", () => socket.destroy());
      socket.on("data", () => {
        socket.write(bytes(requests++), () => end(socket));
      });
    }),
  );
}

function transportTo(url: string, more: object = {}) {
  return closeAfterTest(createHttpTransport(testConfig(url, more)));
}

const GET: TransportRequest = { method: "GET", path: "/x", headers: { accept: "application/json" }, body: null };
const POST: TransportRequest = { ...GET, method: "POST", body: "{}" };
const QUICK = { deadlines: { connect_ms: 500, headers_ms: 300, total_ms: 900 } };
const failureAt = (url: string, more: object = {}) => errorOf(transportTo(url, more).send(GET, never()));
const json = (response: ServerResponse, body: unknown) =>
  response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(body));

it("the transport returns status, headers and body of a reply", async () => {
  const url = await service((request, response) => {
    response.setHeader("X-RateLimit-Remaining", "3");
    json(response, { url: request.url });
  });
  const reply = await transportTo(url).send({ ...GET, path: "/a?b=%2C" }, never());
  expect(reply).toMatchObject({ status: 200, headers: { "x-ratelimit-remaining": "3" } });
  expect(Buffer.from(reply.body).toString()).toBe('{"url":"/a?b=%2C"}');
});

it("the transport ignores an interim response", async () => {
  const interim = "HTTP/1.1 103 Early Hints\r\ncontent-encoding: gzip\r\ncontent-length: 0\r\n\r\n";
  const url = await raw(() => `${interim}HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}`);
  const { status, body } = await transportTo(url).send(GET, never());
  expect([status, Buffer.from(body).toString()]).toEqual([200, "{}"]);
});

describe("a truncated body", () => {
  const tags = Array.from({ length: 20 }, (_, i) => ({ ...tagRecord(String(i)), value: i / 2 }));
  const ids = tags.map((tag) => tag.id);
  const body = JSON.stringify({ data: tags }).replaceAll("°", "deg ");
  const head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";
  const chunked = `${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`;
  const FORMS = {
    "with Content-Length": `${head}Content-Length: ${body.length}\r\n\r\n${body}`,
    chunked: `${head}Transfer-Encoding: chunked\r\n\r\n${chunked}`,
    "ended by closing the connection": `${head}Connection: close\r\n\r\n${body}`,
  };

  it.each(Object.entries(FORMS))(
    "a body %s is rejected at every truncated length; only the complete body is accepted",
    async (_name, whole) => {
      let cut = 0;
      const url = await raw(() => whole.slice(0, cut));
      const transport = transportTo(url);
      const harness = openHarness(transport.send);
      // Every byte near both ends and every 23rd between; all of them with PLENUM_LONG.
      const step = process.env.PLENUM_LONG === "1" ? 1 : 23;
      const edges = (at: number) => at < 130 || at > whole.length - 30 || at % step === 0;
      for (cut = 1; cut < whole.length; cut++) {
        if (!edges(cut)) continue;
        const outcome = await harness.source.read(ids, "live", never()).then(
          (reply) => `accepted ${reply.readings.length} after ${cut} of ${whole.length} bytes`,
          (error: { kind?: string }) => error.kind,
        );
        expect(["retryable", "malformed"]).toContain(outcome);
      }
      cut = whole.length;
      expect((await harness.source.read(ids, "live", never())).readings).toHaveLength(20);
    },
  );
});

describe("a 429 or 503 whose body is lost", () => {
  const packed = gzipSync('{"errors":[{"status":429,"meta":{"retry_after":40}}]}').toString("latin1");
  const LOST = {
    "cut off": 'Content-Length: 500\r\n\r\n{"errors":[{"status":4',
    "cut off in a chunk": "Transfer-Encoding: chunked\r\n\r\n1f4\r\n{",
    "with an empty body": "Content-Length: 500\r\n\r\n",
    compressed: `Content-Encoding: gzip\r\nContent-Length: ${packed.length}\r\n\r\n${packed}`,
    "too large by its stated length": `Content-Length: ${1024 ** 3}\r\n\r\n<html>`,
    "too large": `Connection: close\r\n\r\n${" ".repeat(70_000)}`,
    "followed by invalid HTTP": "Transfer-Encoding: chunked\r\n\r\nlong\r\n",
  };

  it.each(Object.entries(LOST))("%s: the client uses the status and Retry-After", async (_name, rest) => {
    for (const [status, retryAfterMs] of [
      [429, 41_000],
      [503, 40_000],
    ] as const) {
      const respond = `HTTP/1.1 ${status} Wait\r\nRetry-After: 40\r\n${rest}`;
      const url = await raw(() => Buffer.from(respond, "latin1"));
      const transport = transportTo(url, { max_body_bytes: 65_536 });
      const failure = await errorOf(openHarness(transport.send).source.read(["1"], "live", never()));
      expect(failure).toMatchObject({ kind: "throttled", retryAfterMs });
    }
  });

  it("a lost body with any other status is a retryable error", async () => {
    for (const status of [200, 401, 403, 404, 422, 500, 504]) {
      const url = await raw(() => `HTTP/1.1 ${status} X\r\nRetry-After: 40\r\n${LOST["cut off"]}`);
      const failure = await errorOf(openHarness(transportTo(url).send).source.read(["1"], "live", never()));
      expect([status, failure.kind]).toEqual([status, "retryable"]);
    }
  });

  it("when the request is aborted, rejects with the reason of the abort instead of the service's requested wait", async () => {
    const stop = new AbortController();
    const respond = `HTTP/1.1 503 Wait\r\nRetry-After: 40\r\n${LOST["cut off"]}`;
    const url = await raw(
      () => respond,
      () => setTimeout(() => stop.abort(new Error("stopping")), 50),
    );
    const failure = await errorOf(transportTo(url).send(GET, stop.signal));
    expect(failure.message).toBe("stopping");
  });
});

describe("redirects", () => {
  it.each([301, 302, 303, 307, 308])("follows no redirect with status %i, for any endpoint", async (status) => {
    const seen: string[] = [];
    const attacker = await service((request, response) => {
      seen.push(`${request.method} ${request.url} ${request.headers.authorization}`);
      json(response, { data: [] });
    });
    let asked = 0;
    const url = await service((request, response) => {
      asked++;
      request.resume();
      response.writeHead(status, { location: `${attacker}/api/v1/stolen?x=1` }).end();
    });
    const harness = openHarness(transportTo(url).send, { config: testConfig(url) });
    for (const [name, call] of Object.entries(CALLS)) {
      const failure = await errorOf(call(harness.source));
      expect({ name, failure }).toMatchObject({ failure: { kind: "malformed" } });
      expect(failure.message).toContain(attacker);
      expect(failure.message).not.toContain("stolen");
    }
    await harness.source.health(never());
    expect(seen).toEqual([]);
    expect(asked).toBe(Object.keys(CALLS).length + 1);
  });
});

describe("bodies that are too large", () => {
  it("a too large body is rejected at once by its stated length", async () => {
    const url = await service((_request, response) => {
      response.writeHead(200, { "content-length": String(1024 ** 3) }).write("[");
    });
    const message = "The response is larger than 65536 bytes.";
    expect(await failureAt(url, { max_body_bytes: 65_536 })).toMatchObject({ kind: "malformed", message });
  });

  it("an endless body is read only up to the limit", async () => {
    let sent = 0;
    const url = await service((_request, response) => {
      response.writeHead(200);
      const more = () => {
        while (!response.destroyed && response.write(Buffer.alloc(65_536, 32))) sent += 65_536;
      };
      response.on("drain", more);
      more();
    });
    const before = process.memoryUsage().rss;
    expect(await failureAt(url)).toMatchObject({ kind: "malformed" });
    expect(process.memoryUsage().rss - before).toBeLessThan(128 * 1024 ** 2);
    expect(sent).toBeLessThan(64 * 1024 ** 2);
  });

  it("a compressed body is rejected without unpacking", async () => {
    const bomb = gzipSync(Buffer.alloc(64 * 1024 ** 2, 32), { level: 9 });
    const url = await service((_request, response) => {
      response.writeHead(200, { "content-encoding": "gzip", "content-length": bomb.length }).end(bomb);
    });
    expect(await failureAt(url)).toMatchObject({ kind: "malformed" });
  });
});

describe("slow responses", () => {
  const drip = (response: ServerResponse) => {
    const timer = setInterval(() => response.write(" "), 20);
    response.once("close", () => clearInterval(timer));
  };

  it.each(["alarms", "tags", "read", "write", "history"])(
    "a slow body of %s fails at the total deadline",
    async (name) => {
      const url = await service((_request, response) => drip(response.writeHead(200)));
      const harness = openHarness(transportTo(url, QUICK).send, { config: testConfig(url) });
      const failure = await errorOf(CALLS[name]?.(harness.source) ?? Promise.resolve());
      expect(failure).toMatchObject({ kind: "retryable", message: `${url} did not answer completely within 900 ms.` });
    },
  );

  it("a request fails at the deadline if nothing arrives", async () => {
    expect(await failureAt(await service(() => undefined), QUICK)).toMatchObject({ kind: "retryable" });
  });

  it("a request aborted while it waits for a connection is never sent", async () => {
    const asked: (string | undefined)[] = [];
    const answers: (() => void)[] = [];
    const url = await service((request, response) => {
      asked.push(request.url);
      answers.push(() => json(response, {}));
    });
    const transport = transportTo(url);
    const busy = Array.from({ length: 12 }, (_, n) => transport.send({ ...GET, path: `/${n}` }, never()));
    await expect.poll(() => asked.length).toBe(12);
    const abort = new AbortController();
    const waiting = errorOf(transport.send({ ...GET, path: "/given-up" }, abort.signal));
    await setImmediate();
    abort.abort(new Error("given up"));
    expect(await waiting).toMatchObject({ message: "given up" });
    for (const respond of answers.splice(0)) respond();
    await Promise.all(busy);
    const last = transport.send({ ...GET, path: "/last" }, never());
    await expect.poll(() => asked.length).toBe(13);
    for (const respond of answers) respond();
    await last;
    expect(asked.at(-1)).toBe("/last");
  });
});

describe("broken connections", () => {
  const respond = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";

  it("a refused connection and an unknown host name are retryable errors", async () => {
    const server = createTcpServer();
    const url = await listening(server);
    await new Promise((resolve) => server.close(resolve));
    expect((await failureAt(url)).message).toBe(`${url} could not be asked: it refuses the connection (ECONNREFUSED).`);
    const unknown = transportTo("https://no-such-name.invalid", QUICK);
    expect(await errorOf(unknown.send(GET, never()))).toMatchObject({ kind: "retryable" });
  });

  it.each([
    ["closed", (socket: Socket) => socket.end()],
    ["reset", (socket: Socket) => socket.resetAndDestroy()],
  ])(
    "a kept-alive socket that is %s during the second request is reported as stale; a new socket is not",
    async (_name, breakIt) => {
      let requests = 0;
      const url = await listening(
        createTcpServer((socket) => {
          let onThisSocket = 0;
          socket.on("error", () => socket.destroy());
          socket.on("data", (data) => {
            // A TLS handshake probe.
            if (data[0] === 0x16) return void socket.destroy();
            requests++;
            onThisSocket++;
            if (onThisSocket === 1 && requests !== 3) socket.write(respond);
            else breakIt(socket);
          });
        }),
      );
      const transport = transportTo(url);
      await transport.send(GET, never());
      // A socket is free again one turn after its reply.
      await setImmediate();
      expect(await errorOf(transport.send(POST, never()))).toBeInstanceOf(StaleSocket);
      const third = await errorOf(transport.send(GET, never()));
      expect(third).toMatchObject({ kind: "retryable" });
      expect(third).not.toBeInstanceOf(StaleSocket);
      expect(await transport.send(GET, never())).toMatchObject({ status: 200 });
      expect(requests).toBe(4);
    },
  );

  it.each([
    ["that is not HTTP", "SSH-2.0-OpenSSH_9.2\r\n"],
    ["whose headers do not end", `HTTP/1.1 200 OK\r\nX: ${"x".repeat(100_000)}\r\n\r\n{}`],
  ])("a reply %s is malformed", async (_what, bytes) => {
    expect(await failureAt(await raw(() => bytes))).toMatchObject({ kind: "malformed" });
  });

  it("close ends the running requests and closes the connections", async () => {
    const server = createServer(() => undefined);
    const url = await listening(server);
    const transport = createHttpTransport(testConfig(url));
    const sent = errorOf(transport.send(GET, never()));
    await new Promise<void>((resolve) => server.once("request", () => resolve()));
    await transport.close();
    expect(await sent).toMatchObject({ kind: "retryable" });
  });
});
