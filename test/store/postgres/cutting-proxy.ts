import { type AddressInfo, connect, createServer, type Socket } from "node:net";

type CommitFault = "unsent" | "unanswered" | "late";

export type CuttingProxy = Awaited<ReturnType<typeof startCuttingProxy>>;

const COMMIT = Buffer.from("commit\0");
const COMMITTED = Buffer.from("COMMIT\0");

export async function startCuttingProxy(serverPort: number) {
  const sockets = new Set<Socket>();
  let wanted: { readonly fate: CommitFault; readonly done: () => void } | null = null;
  let held: (() => Promise<string>) | null = null;

  const server = createServer((client) => {
    const database = connect(serverPort, "127.0.0.1");
    let isMute = false;
    let whenCommitted = () => {};
    for (const socket of [client, database]) {
      sockets.add(socket);
      socket.on("error", () => socket.destroy());
      socket.on("close", () => sockets.delete(socket));
    }
    const end = () => {
      client.destroy();
      database.destroy();
    };
    client.on("data", (chunk) => {
      const now = chunk.includes(COMMIT) ? wanted : null;
      if (now === null) {
        database.write(chunk);
        return;
      }
      wanted = null;
      isMute = true;
      if (now.fate === "unsent") {
        end();
        now.done();
      } else if (now.fate === "unanswered") {
        whenCommitted = () => {
          end();
          now.done();
        };
        database.write(chunk);
      } else {
        held = () =>
          new Promise((resolve) => {
            let serverText = "";
            database.on("data", (reply) => {
              serverText += reply.toString("latin1");
              if (!/ROLLBACK\0|COMMIT\0/.test(serverText)) return;
              database.destroy();
              resolve(serverText);
            });
            database.write(chunk);
          });
        client.destroy();
        now.done();
      }
    });
    database.on("data", (chunk) => {
      if (!isMute) client.write(chunk);
      else if (chunk.includes(COMMITTED)) whenCommitted();
    });
    client.on("close", () => {
      if (held === null) database.destroy();
    });
    database.on("close", () => client.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    port: (server.address() as AddressInfo).port,
    /** Applies to the next commit; resolves when it has happened. */
    cut: (fate: CommitFault) =>
      new Promise<void>((done) => {
        wanted = { fate, done };
      }),
    /** Sends the held packet; resolves with the server's reply. */
    async release(): Promise<string> {
      const deliver = held;
      held = null;
      return deliver === null ? "" : deliver();
    },
    async close(): Promise<void> {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
