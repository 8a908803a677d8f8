import { type AddressInfo, connect, createServer, type Socket } from "node:net";

export async function startByteCuttingProxy(databasePort: number) {
  const sockets = new Set<Socket>();
  let passed = 0;
  let atCommit = 0;
  let cutAt: number | null = null;

  const server = createServer((client) => {
    const far = connect(databasePort, "127.0.0.1");
    for (const socket of [client, far]) {
      sockets.add(socket);
      socket.on("error", () => undefined);
      socket.on("close", () => {
        client.destroy();
        far.destroySoon();
      });
    }
    far.on("data", (chunk: Buffer) => void client.write(chunk));
    client.on("data", (chunk: Buffer) => {
      const left = cutAt === null ? Number.POSITIVE_INFINITY : cutAt - passed;
      if (chunk.includes("commit\0")) atCommit = passed;
      passed += chunk.length;
      far.write(chunk.subarray(0, Math.max(0, left)));
      if (chunk.length >= left) {
        cutAt = null;
        client.destroy();
      }
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    port: (server.address() as AddressInfo).port,
    bytesToCommit: () => atCommit,
    /** Breaks the connection after so many more bytes to the server. */
    cutAfter(bytes: number): void {
      passed = 0;
      cutAt = bytes;
    },
    async close(): Promise<void> {
      for (const socket of sockets) socket.destroy();
      await new Promise<void>((resolve) => server.close(() => resolve()));
    },
  };
}
