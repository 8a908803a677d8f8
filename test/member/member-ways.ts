import { createServer } from "node:http";
import { type AddressInfo, connect, type Socket } from "node:net";
import type { Duplex } from "node:stream";

/** An HTTP proxy on the way of all members to the services, which knows each member by its password. */
export interface MemberWays {
  readonly url: string;
  /** Ends the tunnels of the member and refuses new ones. */
  cut(member: string): void;
  /** Keeps the tunnels of the member and accepts new ones, but lets nothing pass. */
  stall(member: string): void;
  heal(member: string): void;
  close(): Promise<void>;
}

export async function startMemberWays(): Promise<MemberWays> {
  const states = new Map<string, "cut" | "stalled">();
  const tunnels = new Set<{ readonly member: string; readonly sides: readonly Duplex[] }>();
  const sockets = new Set<Socket>();
  const server = createServer();
  server.on("connection", (socket: Socket) => {
    sockets.add(socket.on("error", () => socket.destroy()));
    socket.on("close", () => sockets.delete(socket));
  });
  server.on("connect", ({ headers, url = "" }, client) => {
    const [, member = ""] = Buffer.from(headers["proxy-authorization"]?.split(" ")[1] ?? "", "base64")
      .toString()
      .split(":");
    if (states.get(member) === "cut") return void client.destroy();
    const [host, port] = url.split(":");
    const far = connect({ host: host ?? "", port: Number(port) });
    const tunnel = { member, sides: [client, far] };
    tunnels.add(tunnel);
    for (const [here, there] of [
      [client, far],
      [far, client],
    ] as const) {
      here.on("data", (bytes: Buffer) => void there.write(bytes));
      here.on("error", () => here.destroy());
      here.on("close", () => {
        there.destroy();
        tunnels.delete(tunnel);
      });
      if (states.get(member) === "stalled") here.pause();
    }
    far.once("connect", () => client.write("HTTP/1.1 200 Connection established\r\n\r\n"));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const sidesOf = (of: string) => [...tunnels].filter(({ member }) => member === of).flatMap(({ sides }) => sides);
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    cut(member) {
      states.set(member, "cut");
      for (const side of sidesOf(member)) side.destroy();
    },
    stall(member) {
      states.set(member, "stalled");
      for (const side of sidesOf(member)) side.pause();
    },
    heal(member) {
      states.delete(member);
      for (const side of sidesOf(member)) side.resume();
    },
    async close() {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
