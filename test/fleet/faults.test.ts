import { describe, expect, test } from "vitest";
import { absent } from "../real-servers.ts";
import { fleetsOfTheirOwn, type Rig, SOURCES, TIMING } from "./rig.ts";

describe.skipIf(absent("postgres"))("a fleet with failures", () => {
  const { server, begin } = fleetsOfTheirOwn();
  let rig: Rig;

  test("assigns the sources of a killed member to others as soon as its lease has expired", async () => {
    rig = begin();
    const [a, b, c] = [await rig.member("a"), await rig.member("b"), await rig.member("c")];
    await rig.settled(a, b, c);
    await a.crash();
    await rig.settled(b, c);
    expect(await rig.ask("select count(*)::int from takeover where reason = 'lease-ran-out'")).toEqual([[3]]);
    expect(await rig.ask("select gone from member where name = 'a'")).toEqual([["lost"]]);
  });

  test("moves the sources of a suspended member, which rejoins when its process continues", async () => {
    rig = begin();
    const [a, b] = [await rig.member("a"), await rig.member("b")];
    await rig.settled(a, b);
    const before = a.holding();
    const leases = rig.begun.filter(({ member, isOver }) => member === "a" && !isOver);
    a.clock.pause();
    await expect.poll(() => b.holding().length, { interval: 20 }).toBe(SOURCES.length);
    // Nothing of it ran meanwhile, and still nobody who asks its leases is told that they are good.
    expect(leases.map(({ lease }) => lease.leftMs())).toEqual(before.map(() => 0));
    a.clock.resume();
    await rig.settled(a, b);
    expect(leases.every(({ lease }) => lease.signal.aborted)).toBe(true);
  });

  test.each(["cut", "stall"] as const)(
    "stops sources on a member without the database before other members start them (%s)",
    async (how) => {
      rig = begin();
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

  test("runs no source while the database is unavailable, and all sources once the database is back", async () => {
    rig = begin();
    const [a, b] = [await rig.member("a"), await rig.member("b")];
    await rig.settled(a, b);
    await server().kill();
    await expect.poll(() => rig.held(), { interval: 20 }).toEqual([]);
    const away = await a.fleet.status();
    expect([away.database, away.members.length, away.sources.length]).toEqual([null, 2, SOURCES.length]);
    expect(away.trouble).toContain("127.0.0.1");
    await server().again();
    await rig.settled(a, b);
    expect((await a.fleet.status()).trouble).toBeNull();
  });

  test("moves no source during a short restart of the database", async () => {
    rig = begin();
    const timing = { ...TIMING, ttlMs: 20_000 };
    const [a, b] = [await rig.member("a", { timing }), await rig.member("b", { timing })];
    await rig.settled(a, b);
    const before = rig.begun.length;
    // Fast, without a wait for those who are connected.
    server().signal("SIGINT");
    await server().end();
    await server().again();
    // Somebody else comes, so both have looked and renewed since.
    const c = await rig.member("c", { timing });
    await rig.settled(a, b, c);
    expect(rig.begun.slice(before).map(({ member }) => member)).toEqual(["c", "c", "c"]);
  });

  test("ignores wall clocks that are wrong by five minutes", async () => {
    rig = begin();
    const a = await rig.member("a", { wrongByMs: 300_000 });
    const b = await rig.member("b", { wrongByMs: -300_000 });
    await rig.settled(a, b);
    const c = await rig.member("c");
    await rig.settled(a, b, c);
    await a.crash();
    await rig.settled(b, c);
    const lost = await rig.ask("select distinct from_member from takeover where reason = 'lease-ran-out'");
    expect(lost).toEqual([["a"]]);
  });

  test("releases sources that a member took in a transaction whose response was lost", async () => {
    rig = begin();
    let isLost = false;
    const a = await rig.member("a", {
      around: (database) => ({
        ...database,
        async transact(asked) {
          const answers = await database.transact(asked);
          if (!isLost && asked.some(({ text }) => text.includes("skip locked"))) {
            isLost = true;
            throw new Error("the answer was lost");
          }
          return answers;
        },
      }),
    });
    await rig.settled(a);
    expect(isLost).toBe(true);
  });
});

describe.skipIf(absent("postgres") || absent("faketime"))("a fleet whose database has a wrong clock", () => {
  const { server, begin } = fleetsOfTheirOwn(true);

  test.each([-600, 600])("replaces only the killed member in time after a clock step of %i s", async (byS) => {
    const rig = begin();
    server().setClock(0);
    const [a, b, c] = [await rig.member("a"), await rig.member("b"), await rig.member("c")];
    await rig.settled(a, b, c);
    const trueMs = Date.now();
    server().setClock(byS);
    const stepped = await rig.ask("select extract(epoch from clock_timestamp())::double precision * 1000");
    // Nearer to the new clock than to true time.
    expect(Math.abs(Number(stepped[0]?.[0]) - trueMs - byS * 1_000)).toBeLessThan(Math.abs(byS) * 500);
    await a.crash();
    await rig.settled(b, c);
    expect(await rig.ask("select name from member where gone = 'lost'")).toEqual([["a"]]);
  });
});
