import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";

export async function startCuttingProxy(target: number, nextCut: () => number | null) {
  const sockets = new Set<Socket>();
  let cuts = 0;
  const server = createServer((client) => {
    const broker = connect(target, "127.0.0.1");
    let remainingBytes = nextCut();
    const end = () => {
      client.destroy();
      broker.destroy();
    };
    for (const socket of [client, broker]) {
      sockets.add(socket);
      socket.on("error", end);
      socket.on("close", end);
    }
    client.on("data", (data) => {
      if (remainingBytes === null || data.length <= remainingBytes) {
        broker.write(data);
        if (remainingBytes !== null) remainingBytes -= data.length;
        return;
      }
      cuts += 1;
      broker.end(data.subarray(0, remainingBytes));
      client.destroy();
    });
    broker.pipe(client);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    port: (server.address() as AddressInfo).port,
    get cuts() {
      return cuts;
    },
    close: () => closeServer(server, sockets),
  };
}

export async function closeServer(server: Server, sockets: Iterable<Socket>): Promise<void> {
  const closed = once(server, "close");
  server.close();
  for (const socket of sockets) socket.destroy();
  await closed;
}
