import { once } from "node:events";
import { createServer } from "node:http";
import { type AddressInfo, connect } from "node:net";
import type { Duplex } from "node:stream";

/** An HTTP proxy whose tunnels open only while it is open itself. */
export interface Gate {
  readonly url: string;
  /**
   * Ends all tunnels, and lets those that come wait; resolves once whoever had a tunnel has seen its end, so that nothing is
   * sent through one any more and then tried again.
   */
  shut(): Promise<void>;
  open(): void;
  close(): void;
}

export async function startGate(): Promise<Gate> {
  const sockets = new Set<Duplex>();
  const clients = new Set<Duplex>();
  const waiting: (() => void)[] = [];
  let isShut = false;

  const server = createServer();
  server.on("connect", (request, client) => {
    sockets.add(client.on("error", () => client.destroy()));
    clients.add(client.on("close", () => clients.delete(client)));
    const [host = "", port = ""] = (request.url ?? "").split(":");
    const through = () => {
      const far = connect({ host, port: Number(port) });
      sockets.add(far.on("error", () => client.destroy()));
      far.once("connect", () => {
        client.write("HTTP/1.1 200 Connection established\r\n\r\n");
        client.pipe(far).pipe(client);
      });
    };
    if (!isShut) return through();
    waiting.push(through);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));

  function endAll(): void {
    for (const socket of sockets) socket.destroy();
    sockets.clear();
  }

  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async shut() {
      isShut = true;
      await Promise.all(
        [...clients].map((client) => {
          const closed = once(client, "close");
          client.resume().end();
          return closed;
        }),
      );
      endAll();
    },
    open() {
      isShut = false;
      for (const each of waiting.splice(0)) each();
    },
    close() {
      server.close();
      endAll();
    },
  };
}
