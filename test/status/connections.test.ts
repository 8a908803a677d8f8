import { EventEmitter, once } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import { get, type IncomingMessage, type Server } from "node:http";
import { connect, type Socket } from "node:net";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { Secret } from "#src/core/runtime/log.ts";
import { clientOfAddress, limitConnections } from "#src/ui/status/connection-limits.ts";
import { createStatusServer } from "#src/ui/status/status-server.ts";
import { openHarness, simulatedServer } from "../cli/plenum.ts";
import { serverOptions, statusBuilding } from "./status-building.ts";

const DESCRIPTORS = 90;

/** Opens half-open connections. Connections without a response were closed by a limit; a timeout sends 408. */
async function flood(count: number, port: number, said: string, addressOf: (n: number) => string = () => "127.0.0.1") {
  const sockets = new Set<Socket>();
  const gone = new EventEmitter();
  let rejectedCount = 0;
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
  });
  for (let n = 0; n < count; n += 1) {
    const socket = connect({ port, host: "127.0.0.1", localAddress: addressOf(n) });
    sockets.add(socket);
    socket.on("error", () => undefined);
    // Unread data would hide the end of the connection.
    socket.resume();
    socket.on("close", () => {
      if (socket.bytesRead === 0) rejectedCount += 1;
      sockets.delete(socket);
      gone.emit("one");
    });
    // One by one: the system delays connections that arrive together by seconds.
    await once(socket, "connect");
    socket.write(said);
  }
  return {
    turnedAway: () => rejectedCount,
    /** Resolves when at most so many connections are open. */
    async atMost(most: number): Promise<void> {
      while (sockets.size > most) await once(gone, "one");
    },
  };
}

const statusUrlOf = async ({ waitForOutput }: ReturnType<ReturnType<typeof openHarness>["start"]>) =>
  /"status":"(http:[^"]+)"/.exec(await waitForOutput('"Plenum is running"'))?.[1] ?? "";
const onLinux = test.skipIf(process.platform !== "linux");

onLinux(
  "1,100 half-open connections leave the worker with a bounded number of file descriptors, and the worker continues",
  async () => {
    const service = await simulatedServer();
    const place = openHarness(service.url);
    const worker = place.start("run");
    const url = await statusUrlOf(worker);
    const descriptors = () => readdirSync(`/proc/${worker.pid}/fd`).length;
    const descriptorsBefore = descriptors();
    const halfOpen = await flood(1_100, Number(new URL(url).port), "GET / HTTP/1.1\r\n");
    await halfOpen.atMost(150);
    expect(halfOpen.turnedAway(), "by the limit, not by the time").toBeGreaterThan(500);
    expect(descriptors()).toBeLessThan(descriptorsBefore + 200);
    await halfOpen.atMost(0);
    await expect.poll(async () => (await fetch(`${url}/readyz`)).status).toBe(200);
    await worker.stop();
    expect(readdirSync(join(place.folder, "state")).length).toBeGreaterThan(0);
  },
  60_000,
);

onLinux("a worker without file descriptors for 10 s polls again within seconds and blames no service", async () => {
  const service = await simulatedServer();
  const polls = () => service.simulator.truth.requests().filter(({ endpoint }) => endpoint === "alarms").length;
  const place = openHarness(service.url);
  place.configure({
    source: {
      schedules: { alarms: "*/2 * * * * *", resolved_sweep: false },
      read: [{ name: "all", every: "1m" }],
      quota: { list_requests_per_minute: 120 },
    },
  });
  const worker = place.startWithin(DESCRIPTORS, "run");
  const url = await statusUrlOf(worker);
  await expect.poll(polls).toBeGreaterThan(1);
  const halfOpen = await flood(DESCRIPTORS, Number(new URL(url).port), "GET / HTTP/1.1\r\n");
  const requestsDuring = polls();
  await expect.poll(() => readdirSync(`/proc/${worker.pid}/fd`).length).toBeGreaterThan(DESCRIPTORS - 3);
  await halfOpen.atMost(0);
  expect(polls(), "the token is remembered, and the connection kept").toBeGreaterThan(requestsDuring);
  const requestsBefore = polls();
  await expect.poll(polls).toBeGreaterThan(requestsBefore);
  worker.signal("SIGTERM");
  const { stderr } = await worker.ended;
  expect(stderr).not.toMatch(/set aside|not to be had|refuse|secret file/);
  const texts = readdirSync(place.path("events")).map((name) => readFileSync(place.path(`events/${name}`), "utf8"));
  expect(texts.join("")).not.toMatch(/"(source-unavailable|feature-[a-z]+|token-[a-z]+)"/);
});

/** Rest of the head of a request with the right password; without its last line. */
const AUTHORIZED_REQUEST = `HTTP/1.1\r\nhost: localhost\r\nx-plenum: status-page\r\nauthorization: Basic ${Buffer.from("plenum:correct horse").toString("base64")}\r\n`;

describe.skipIf(process.platform !== "linux")("half-open connections of six addresses", () => {
  test.each([
    ["send nothing", ""],
    ["send half a header", "GET / HTTP/1.1\r\n"],
    [
      "send half a body",
      `POST /api/silences ${AUTHORIZED_REQUEST}content-type: application/json\r\ncontent-length: 99\r\n\r\n{`,
    ],
    ["keep a connection after a response", "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"],
    ["wait for the check of a password", `GET /api/status ${AUTHORIZED_REQUEST.replace("cGxl", "eGxl")}\r\n`],
  ])("do not block another visitor when they %s", async (_, said) => {
    const password = new Secret("correct horse");
    const server = createStatusServer(serverOptions(await statusBuilding(), { password }));
    await server.start(new AbortController().signal);
    onTestFinished(() => server.stop(1_000));
    const port = Number(new URL(server.url()).port);
    await flood(192, port, said, (n) => `127.0.0.${2 + (n % 6)}`);
    for (let n = 0; n < 20; n += 1) expect(await health(port)).toBe(200);
  });
});

/** Status of `/healthz` for another visitor, with a connection of its own. */
async function health(port: number): Promise<number> {
  const healthRequest = get({ port, host: "127.0.0.1", localAddress: "127.0.0.9", path: "/healthz", agent: false });
  const [response] = (await once(healthRequest, "response")) as [IncomingMessage];
  response.resume();
  return response.statusCode ?? 0;
}

describe("the connection limits", () => {
  function limitedServer(nearAddress: string | null = null) {
    const server = Object.assign(new EventEmitter(), { setTimeout: () => undefined });
    const limits = { maxTotal: 7, others: 4, perAddress: 2, localAndProxy: 5 };
    limitConnections(server as unknown as Server, nearAddress, limits);
    const arrive = (remoteAddress: string) => {
      let closed = false;
      const socket = Object.assign(new EventEmitter(), {
        remoteAddress,
        destroy() {
          closed = true;
          socket.emit("close");
        },
      });
      server.emit("connection", socket);
      /** Sends a request; `ends` is the end of its response by the worker, `read` that the client has it. */
      const request = (complete = true) => {
        const response = Object.assign(new EventEmitter(), { writableEnded: false });
        server.emit("request", { socket, complete }, response);
        return { ends: () => Object.assign(response, { writableEnded: true }), read: () => response.emit("close") };
      };
      return { closed: () => closed, leave: () => socket.emit("close"), request };
    };
    const closed = (all: readonly { closed(): boolean }[]) => all.map((each) => each.closed());
    return { arrive, closed };
  }

  test("close the oldest connection of an address for a new connection", () => {
    const { arrive, closed } = limitedServer();
    const otherConnection = arrive("192.0.2.2");
    const all = [arrive("192.0.2.1"), arrive("::ffff:192.0.2.1"), arrive("192.0.2.1")];
    expect(closed([otherConnection, ...all])).toEqual([false, true, false, false]);
    all[1]?.leave();
    expect(closed([...all, arrive("192.0.2.1")])).toEqual([true, false, false, false]);
  });

  test("reject a new connection while all other connections wait for a response", () => {
    const { arrive, closed } = limitedServer();
    const [first, second] = [arrive("192.0.2.1"), arrive("192.0.2.1")];
    const [answered] = [first.request(), second.request()];
    expect(closed([first, second, arrive("192.0.2.1")])).toEqual([false, false, true]);
    answered.ends();
    answered.read();
    expect(closed([first, second, arrive("192.0.2.1")])).toEqual([true, false, false]);
  });

  test("close an incomplete request before a connection that is receiving its response", () => {
    const { arrive, closed } = limitedServer();
    const [sending, half] = [arrive("192.0.2.1"), arrive("192.0.2.1")];
    sending.request().ends();
    half.request(false);
    expect(closed([sending, half, arrive("192.0.2.1")])).toEqual([false, true, false]);
    const third = arrive("192.0.2.1");
    third.request();
    expect(closed([sending, third, arrive("192.0.2.1")])).toEqual([true, false, false]);
  });

  test("reserve connections for this machine and the proxy", () => {
    const { arrive, closed } = limitedServer("198.51.100.9");
    const strangers = [1, 2, 3, 4, 5].map((n) => arrive(`192.0.2.${n}`));
    expect(closed(strangers)).toEqual([true, false, false, false, false]);
    const near = ["127.0.0.1", "::1", "198.51.100.9"].map(arrive);
    expect(closed(strangers)).toEqual([true, false, false, false, false]);
    const more = ["127.8.8.8", "::ffff:127.0.0.1", "198.51.100.9", "198.51.100.9"].map(arrive);
    expect(closed(strangers)).toEqual([true, true, true, true, true]);
    expect(closed([...near, ...more])).toEqual(Array(7).fill(false));
    expect(closed([arrive("127.0.0.1"), arrive("127.0.0.1"), ...near])).toEqual([false, false, true, true, false]);
  });

  test.each([
    ["192.0.2.7", "192.0.2.7"],
    ["::ffff:192.0.2.7", "192.0.2.7"],
    ["::1", "loopback"],
    ["2001:db8::1", "2001:db8:0:0::/64"],
    ["2001:db8:0:0:ffff:1:2:3", "2001:db8:0:0::/64"],
    ["2001:db8:0:7::1", "2001:db8:0:7::/64"],
    ["fe80::1%eth0", "fe80:0:0:0::/64"],
  ])("count a connection from %s as a connection of %s", (address, owner) => {
    expect(clientOfAddress(address)).toBe(owner);
  });
});
