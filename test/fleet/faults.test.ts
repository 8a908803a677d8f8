import { describe, expect, test } from "vitest";
import { absent } from "../real-servers.ts";
import { fleetsInPostgres, SOURCES } from "./postgres-fleet.ts";

describe.skipIf(absent("postgres"))("a fleet with failures", () => {
  const { server, begin } = fleetsInPostgres();

  test("a fleet moves the sources of a suspended member, which rejoins when its process continues", async () => {
    const rig = begin();
    const [a, b] = [await rig.member("a"), await rig.member("b")];
    await rig.settled(a, b);
    const leases = rig.begun.filter(({ member, isOver }) => member === "a" && !isOver);
    a.clock.pause();
    await expect.poll(() => b.holding().length, { interval: 20 }).toBe(SOURCES.length);
    // The suspended process has run nothing, but its leases are already invalid.
    expect(leases.every(({ lease }) => lease.remainingMs() === 0)).toBe(true);
    a.clock.resume();
    await rig.settled(a, b);
    expect(leases.every(({ lease }) => lease.signal.aborted)).toBe(true);
  });

  test.each(["cut", "stall"] as const)(
    "a fleet stops the sources of a member that lost the database before others start them (network fault: %s)",
    async (how) => {
      const rig = begin();
      const [a, b] = [await rig.member("a"), await rig.member("b")];
      await rig.settled(a, b);
      a.network[how]();
      await expect.poll(() => a.holding(), { interval: 10 }).toEqual([]);
      await rig.settled(b);
      expect(a.fleet.notices().join()).toContain("Nothing is polled here");
      a.network.heal();
      await rig.settled(a, b);
      expect(a.fleet.notices()).toEqual([]);
    },
  );

  test("a fleet runs no source while the database is unavailable, and all sources once the database is back", async () => {
    const rig = begin();
    const [a, b] = [await rig.member("a"), await rig.member("b")];
    await rig.settled(a, b);
    await server().kill();
    await expect.poll(() => rig.held(), { interval: 20 }).toEqual([]);
    const status = await a.fleet.status();
    expect([status.database, status.members.length, status.sources.length]).toEqual([null, 2, SOURCES.length]);
    expect(status.trouble).toContain("127.0.0.1");
    await server().startAgain();
    await rig.settled(a, b);
    expect((await a.fleet.status()).trouble).toBeNull();
  });
});

describe.skipIf(absent("postgres") || absent("faketime"))("a fleet whose database has a wrong clock", () => {
  const { server, begin } = fleetsInPostgres(true);

  test.each([-600, 600])("a fleet replaces only the killed member in time after a clock step of %i s", async (byS) => {
    const rig = begin();
    server().setClock(0);
    const [a, b, c] = [await rig.member("a"), await rig.member("b"), await rig.member("c")];
    await rig.settled(a, b, c);
    const trueMs = Date.now();
    server().setClock(byS);
    const [[steppedMs] = []] = await rig.ask("select extract(epoch from clock_timestamp())::double precision * 1000");
    // Nearer to the new clock than to true time.
    expect(Math.abs(Number(steppedMs) - trueMs - byS * 1_000)).toBeLessThan(Math.abs(byS) * 500);
    await a.crash();
    await rig.settled(b, c);
    expect(await rig.ask("select name from member where gone = 'lost'")).toEqual([["a"]]);
  });
});
