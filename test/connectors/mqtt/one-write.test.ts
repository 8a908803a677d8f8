import { once } from "node:events";
import { connect, createServer, type Socket } from "node:net";
import fc from "fast-check";
import { afterEach, describe, expect, test } from "vitest";
import { putTogether } from "#connectors/mqtt/one-write.ts";
import { seed } from "../../seed.ts";

const closing: (() => void)[] = [];
afterEach(() => {
  for (const close of closing.splice(0)) close();
});

/** Both ends of a connection. */
async function connected(): Promise<readonly [near: Socket, far: Socket]> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("It listens nowhere.");
  const near = connect(address.port, "127.0.0.1");
  const [far] = (await once(server, "connection")) as [Socket];
  closing.push(() => {
    near.destroy();
    far.destroy();
    server.close();
  });
  return [near, far];
}

async function everythingFrom(far: Socket): Promise<Buffer> {
  const parts: Buffer[] = [];
  for await (const part of far) parts.push(part as Buffer);
  return Buffer.concat(parts);
}

describe("mqtt: pieces of packets in one write", () => {
  test("what is written between cork and uncork leaves as one", async () => {
    const [near, far] = await connected();
    const writes: number[] = [];
    const write = near.write.bind(near);
    near.write = ((chunk: Buffer) => {
      writes.push(chunk.length);
      return write(chunk);
    }) as typeof near.write;
    putTogether(near);
    near.cork();
    for (const piece of [Buffer.from([0x32]), "temperature", Buffer.from([7]), "21,5 °C"]) near.write(piece);
    expect(writes).toEqual([]);
    near.uncork();
    expect(writes).toEqual([1 + 11 + 1 + 8]);
    near.end();
    expect((await everythingFrom(far)).toString("latin1")).toBe("2temperature\x0721,5 \xC2\xB0C");
  });

  test("whatever is written in whatever pieces arrives, in order, to the last byte", async () => {
    const piece = fc.oneof(
      fc.string({ unit: "binary", maxLength: 200 }),
      fc.uint8Array({ maxLength: 200 }),
      fc.nat(70_000).map((length) => "°".repeat(length)),
      fc.nat(70_000).map((length) => new Uint8Array(length).fill(length % 256)),
    );
    const step = fc.oneof(
      { weight: 6, arbitrary: piece.map((chunk) => ({ chunk })) },
      { weight: 1, arbitrary: fc.constant({ cork: true }) },
      { weight: 1, arbitrary: fc.constant({ cork: false }) },
    );
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 60 }), async (steps) => {
        const [near, far] = await connected();
        putTogether(near);
        const arrived = everythingFrom(far);
        const written: Buffer[] = [];
        for (const each of steps) {
          if ("cork" in each) {
            if (each.cork) near.cork();
            else near.uncork();
            continue;
          }
          const { chunk } = each;
          written.push(Buffer.from(chunk as string));
          near.write(chunk as string);
        }
        near.end();
        expect((await arrived).equals(Buffer.concat(written))).toBe(true);
      }),
      { seed, numRuns: 60 },
    );
  });
});
