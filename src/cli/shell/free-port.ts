import { type AddressInfo, createServer } from "node:net";

export async function findFreePort(preferredPort: number): Promise<number> {
  return (await findPortIfFree(preferredPort)) ?? (await findPortIfFree(0)) ?? preferredPort;
}

function findPortIfFree(port: number): Promise<number | null> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once("error", () => resolve(null));
    server.listen(port, "127.0.0.1", () => {
      const assignedPort = (server.address() as AddressInfo).port;
      server.close(() => resolve(assignedPort));
    });
  });
}
