import { connect, createServer, type Socket } from "node:net";
import { freePort } from "../real-servers.ts";

/** The network between one member and its database: what passes it can be cut or held up. */
export interface Network {
  readonly port: number;
  /** Connections end at once, and new ones are refused. */
  cut(): void;
  /** Connections stay, new ones are accepted, and no byte passes. */
  stall(): void;
  heal(): void;
  close(): Promise<void>;
}

export async function startNetwork(to: number): Promise<Network> {
  const pairs = new Set<readonly [near: Socket, far: Socket]>();
  let state: "well" | "cut" | "stalled" = "well";
  const port = await freePort();
  const server = createServer((near) => {
    if (state === "cut") return void near.destroy();
    const far = connect({ host: "127.0.0.1", port: to });
    const pair = [near, far] as const;
    pairs.add(pair);
    for (const [here, there] of [pair, [far, near] as const]) {
      here.on("data", (bytes) => void there.write(bytes));
      here.on("error", () => here.destroy());
      here.on("close", () => {
        there.destroy();
        pairs.delete(pair);
      });
      if (state === "stalled") here.pause();
    }
  });
  await new Promise<void>((resolve) => server.listen(port, "127.0.0.1", resolve));
  const sockets = () => [...pairs].flat();
  const destroyAll = () => {
    for (const socket of sockets()) socket.destroy();
  };
  return {
    port,
    cut() {
      state = "cut";
      destroyAll();
    },
    stall() {
      state = "stalled";
      for (const socket of sockets()) socket.pause();
    },
    heal() {
      state = "well";
      for (const socket of sockets()) socket.resume();
    },
    async close() {
      destroyAll();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
