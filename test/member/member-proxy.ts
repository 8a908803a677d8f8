import { once } from "node:events";
import { createServer } from "node:http";
import { type AddressInfo, connect, type Socket } from "node:net";
import type { Duplex } from "node:stream";
import { onTestFinished } from "vitest";

/** Starts an HTTP proxy between all members and the services, which knows each member by its password. */
export async function startMemberProxy() {
  const states = new Map<string, "cut" | "stalled" | "held">();
  const tunnels = new Set<{ readonly member: string; readonly client: Duplex; readonly server: Socket }>();
  const waiting: (() => void)[] = [];
  const sockets = new Set<Socket>();
  const server = createServer();
  server.on("connection", (socket: Socket) => {
    sockets.add(socket.on("error", () => socket.destroy()));
    socket.on("close", () => sockets.delete(socket));
  });
  server.on("connect", ({ headers, url = "" }, client) => {
    const credentials = Buffer.from(headers["proxy-authorization"]?.split(" ")[1] ?? "", "base64").toString();
    const [, member = ""] = credentials.split(":");
    const open = () => {
      const [host = "", port] = url.split(":");
      const server = connect({ host, port: Number(port) });
      const tunnel = { member, client, server };
      tunnels.add(tunnel);
      for (const [here, there] of [[client, server] as const, [server, client] as const]) {
        here.on("data", (bytes: Buffer) => void (there.writableEnded || there.write(bytes)));
        here.on("error", () => here.destroy());
        here.on("close", () => {
          there.destroy();
          tunnels.delete(tunnel);
        });
        if (states.get(member) === "stalled") here.pause();
      }
      server.once("connect", () => client.write("HTTP/1.1 200 Connection established\r\n\r\n"));
    };
    if (states.get(member) === "cut") client.destroy();
    else if (states.get(member) === "held") waiting.push(open);
    else open();
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  const tunnelsOf = (member: string) => [...tunnels].filter((tunnel) => tunnel.member === member);
  const sidesOf = (member: string) => tunnelsOf(member).flatMap(({ client, server }) => [client, server]);
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    /** Ends the tunnels of the member and refuses new ones. */
    cut(member: string) {
      states.set(member, "cut");
      for (const side of sidesOf(member)) side.destroy();
    },
    /** Keeps the tunnels of the member and accepts new ones, but lets nothing pass. */
    stall(member: string) {
      states.set(member, "stalled");
      for (const side of sidesOf(member)) side.pause();
    },
    /** Ends the tunnels of the member and lets new ones wait. Resolves when the member has seen the end of each tunnel. */
    async pause(member: string) {
      states.set(member, "held");
      await Promise.all(
        tunnelsOf(member).map(({ client }) => {
          const closed = once(client, "close");
          client.resume().end();
          return closed;
        }),
      );
    },
    heal(member: string) {
      states.delete(member);
      for (const side of sidesOf(member)) side.resume();
      for (const open of waiting.splice(0)) open();
    },
  };
}
