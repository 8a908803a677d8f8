import { once } from "node:events";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { Aedes } from "aedes";

/**
 * An MQTT broker inside the process, for the demo and for tests. It speaks MQTT 3.1.1 only, remembers in memory
 * only, and lets everybody in: loopback only, and never for a building.
 */
export interface DemoBroker {
  readonly url: string;
  readonly port: number;
  close(): Promise<void>;
}

export async function startBroker(
  options: { readonly host?: string; readonly port?: number } = {},
): Promise<DemoBroker> {
  const host = options.host ?? "127.0.0.1";
  const broker = await Aedes.createBroker();
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.once("close", () => sockets.delete(socket));
    broker.handle(socket);
  });
  server.listen(options.port ?? 0, host);
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  return {
    url: `mqtt://${host}:${port}`,
    port,
    async close() {
      const closed = once(server, "close");
      server.close();
      await new Promise<void>((resolve) => broker.close(() => resolve()));
      for (const socket of sockets) socket.destroy();
      await closed;
    },
  };
}
