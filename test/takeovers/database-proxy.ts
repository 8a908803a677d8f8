import { type AddressInfo, connect, createServer, type Socket } from "node:net";

interface Pair {
  readonly member: Socket;
  readonly server: Socket;
}

const CHANGE = /insert|update|delete|commit|fence/i;
const LONG_BYTES = 400;

/** TCP proxy between one member and the database that can be cut or stalled. */
export async function startDatabaseProxy(databasePort: number) {
  const pairs = new Set<Pair>();
  let state: "working" | "cut" | "stalled" = "working";
  let plannedFault: { readonly what: "cut" | "stall"; readonly share: number } | null = null;
  let isFaultActive = false;

  const server = createServer((member) => {
    if (state === "cut") {
      member.destroy();
      return;
    }
    const pair = { member, server: connect(databasePort, "127.0.0.1") };
    pairs.add(pair);
    for (const side of [pair.member, pair.server]) {
      side.setNoDelay(true);
      side.on("error", () => undefined);
      side.on("close", () => {
        pairs.delete(pair);
        pair.member.destroySoon();
        pair.server.destroySoon();
      });
    }
    pair.member.on("data", (chunk: Buffer) => fromMember(pair, chunk));
    pair.server.on("data", (chunk: Buffer) => pair.member.write(chunk));
    if (state === "stalled") pause(pair);
  });

  function fromMember(pair: Pair, chunk: Buffer): void {
    const isChange = chunk.length > LONG_BYTES || CHANGE.test(chunk.toString("latin1"));
    if (plannedFault === null || !isChange) {
      pair.server.write(chunk);
      return;
    }
    const { what, share } = plannedFault;
    plannedFault = null;
    isFaultActive = true;
    const torn = Math.round(share * chunk.length);
    if (what === "cut") {
      pair.server.end(chunk.subarray(0, torn));
      cut();
      return;
    }
    pair.server.write(chunk.subarray(0, torn));
    stall();
    pair.member.unshift(chunk.subarray(torn));
  }

  function pause({ member, server: far }: Pair): void {
    member.pause();
    far.pause();
  }

  function cut(): void {
    state = "cut";
    for (const { member } of pairs) member.destroy();
  }

  function stall(): void {
    state = "stalled";
    for (const pair of pairs) pause(pair);
  }

  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    port: (server.address() as AddressInfo).port,
    cut,
    stall,
    /** Starts in the next packet that contains a change, after `share` of its bytes (0 to 1). */
    inNextChange(what: "cut" | "stall", share: number): void {
      isFaultActive = false;
      plannedFault = { what, share };
    },
    isActive: () => isFaultActive,
    heal(): void {
      plannedFault = null;
      state = "working";
      for (const { member, server: far } of pairs) {
        member.resume();
        far.resume();
      }
    },
    async close(): Promise<void> {
      for (const { member, server: far } of pairs) {
        member.destroy();
        far.destroy();
      }
      await new Promise<void>((resolve) => server.close(() => resolve()));
    },
  };
}
