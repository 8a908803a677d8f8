import type { Server, ServerOptions } from "node:http";
import type { Socket } from "node:net";

/**
 * What keeps connections to the status page from taking the descriptors that polls and sinks need, and crowds from
 * keeping others out: limits of how many there are, and times within which whoever connects has to say something.
 * 1,100 connections that say nothing hold 150 descriptors at most, and none of them for longer than about 14 s.
 */

/** Times in milliseconds: for the headers, for the whole request, and between two requests of a connection. */
export const REQUEST_TIMES = {
  headersTimeout: 10_000,
  requestTimeout: 30_000,
  keepAliveTimeout: 5_000,
  // Also while nobody is connected, and each time wakes a machine that rests.
  connectionsCheckingInterval: 4_000,
} satisfies ServerOptions;

/** Longest silence in both directions, in milliseconds: whoever does not read the answer loses it. */
const LONGEST_SILENCE_MS = 300_000;

export interface ConnectionLimits {
  /** Of all together. */
  readonly total: number;
  /** Of everybody but this machine and the proxy together, so that these two always find a place. */
  readonly others: number;
  /** Of one address, or one network of 64 bits in IPv6: whoever has one of those has all its addresses. */
  readonly perAddress: number;
  /** Of this machine, and of the proxy: behind their address stand many. */
  readonly near: number;
}

const CONNECTION_LIMITS: ConnectionLimits = { total: 200, others: 150, perAddress: 32, near: 150 };

/** Closes at once what is beyond the limits. `nearAddress` is the proxy's, where there is one. */
export function limitConnections(
  server: Server,
  nearAddress: string | null = null,
  limits: ConnectionLimits = CONNECTION_LIMITS,
): void {
  const near = nearAddress === null ? null : ownerOf(nearAddress);
  const open = new Map<string, number>();
  let others = 0;
  server.maxConnections = limits.total;
  server.setTimeout(LONGEST_SILENCE_MS);

  server.on("connection", (socket: Socket) => {
    const owner = ownerOf(socket.remoteAddress ?? "");
    const isNear = owner === LOOPBACK || owner === near;
    const held = open.get(owner) ?? 0;
    if (held >= (isNear ? limits.near : limits.perAddress) || (!isNear && others >= limits.others)) {
      socket.destroy();
      return;
    }
    open.set(owner, held + 1);
    if (!isNear) others += 1;
    socket.once("close", () => {
      const left = (open.get(owner) ?? 1) - 1;
      if (left === 0) open.delete(owner);
      else open.set(owner, left);
      if (!isNear) others -= 1;
    });
  });
}

export const LOOPBACK = "loopback";

/** An address as everybody spells it: `::ffff:192.0.2.7` is `192.0.2.7`. */
export function plainAddress(address: string): string {
  return address.toLowerCase().replace(/^::ffff:(?=\d+\.)/, "");
}

/** Whom an address belongs to, as far as it shows: `192.0.2.7`, `2001:db8:0:7::/64`, or `loopback`. */
export function ownerOf(address: string): string {
  const plain = plainAddress(address).replace(/%.*$/, "");
  if (plain === "::1" || plain.startsWith("127.")) return LOOPBACK;
  if (!plain.includes(":")) return plain;
  const [head = "", tail = ""] = plain.split("::");
  const first = head === "" ? [] : head.split(":");
  const last = tail === "" ? [] : tail.split(":");
  const zeros = plain.includes("::")
    ? Array<string>(Math.max(0, 8 - first.length - last.length)).fill("0")
    : [];
  return `${[...first, ...zeros, ...last].slice(0, 4).join(":")}::/64`;
}
