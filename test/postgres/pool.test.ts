import { expect, test } from "vitest";
import { createPostgresPool } from "#src/core/postgres/pool.ts";
import type { PostgresSession } from "#src/core/postgres/session.ts";
import { yieldToEventLoop } from "#src/core/runtime/waiting.ts";
import { createVirtualClock } from "../virtual-clock.ts";

function session(): PostgresSession {
  let lost: unknown = null;
  return {
    lostReason: () => lost,
    cut: (reason: unknown) => {
      lost ??= reason;
    },
    end: async () => {
      lost ??= new Error("ended");
    },
  } as PostgresSession;
}

function poolOf(connections: number, connect: () => Promise<PostgresSession>) {
  const clock = createVirtualClock(0);
  return { clock, pool: createPostgresPool({ connections, clock, connect }) };
}

/** Resolves with the reason once the connection is lost. */
async function lossOf(given: PostgresSession): Promise<unknown> {
  while (given.lostReason() === null) await yieldToEventLoop();
  return given.lostReason();
}

const LIMIT_MS = 60_000;

test("a pool gives each connection to one caller at a time, in the order of their requests", async () => {
  let opened = 0;
  const { pool } = poolOf(2, async () => {
    opened += 1;
    return session();
  });
  const order: number[] = [];
  const gates = Array.from({ length: 5 }, () => Promise.withResolvers<void>());
  const inUse = new Set<PostgresSession>();
  const uses = gates.map(({ promise }, n) =>
    pool.useSession(LIMIT_MS, async (given) => {
      expect(inUse.has(given)).toBe(false);
      inUse.add(given);
      order.push(n);
      await promise;
      inUse.delete(given);
    }),
  );
  for (const [n, gate] of gates.entries()) {
    await expect.poll(() => order).toContain(n);
    expect(inUse.size).toBeLessThanOrEqual(2);
    gate.resolve();
    await uses[n];
  }
  expect(order).toEqual([0, 1, 2, 3, 4]);
  expect(opened).toBe(2);
});

test("a pool replaces a connection that was lost, or cut during its use", async () => {
  const opened: PostgresSession[] = [];
  const { pool } = poolOf(1, async () => {
    const fresh = session();
    opened.push(fresh);
    return fresh;
  });
  await pool.useSession(LIMIT_MS, async () => undefined);
  opened[0]?.cut(new Error("gone"));
  await pool.useSession(LIMIT_MS, async (given) => expect(given).toBe(opened[1]));
  const cut = pool.useSession(1, async (given) => {
    throw await lossOf(given);
  });
  await expect(cut).rejects.toThrow("has not answered within");
  await pool.useSession(LIMIT_MS, async (given) => expect(given).toBe(opened[2]));
});

test("a pool waits longer after each failed connection, and connects once the server is available", async () => {
  let isAway = true;
  let tried = 0;
  const { clock, pool } = poolOf(3, async () => {
    tried += 1;
    if (isAway) throw new Error("away");
    return session();
  });
  const use = () => pool.useSession(LIMIT_MS, async () => "done");
  for (let n = 0; n < 5; n += 1) await expect(use()).rejects.toThrow("away");
  expect(tried).toBe(1);
  for (const n of [2, 3, 4, 5, 6, 7]) {
    await clock.advance(2_000);
    await expect(use()).rejects.toThrow("away");
    await expect(use()).rejects.toThrow("away");
    expect(tried).toBe(n);
  }
  isAway = false;
  await clock.advance(2_000);
  expect(await use()).toBe("done");
});

test("a closed pool cuts the connections in use, and rejects waiting and new requests", async () => {
  const { pool } = poolOf(1, async () => session());
  const under = Promise.withResolvers<PostgresSession>();
  const using = pool.useSession(LIMIT_MS, (given) => {
    under.resolve(given);
    return lossOf(given);
  });
  const waiting = pool.useSession(LIMIT_MS, async () => "never");
  await under.promise;
  await pool.close();
  await using;
  await expect(waiting).rejects.toThrow("were closed");
  await expect(pool.useSession(LIMIT_MS, async () => "never")).rejects.toThrow("were closed");
});
