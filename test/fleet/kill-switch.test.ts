import { describe, expect, test } from "vitest";
import { createLog } from "#src/core/runtime/log.ts";
import {
  createFleetKillSwitch,
  type FleetKillSwitch,
  readFleetKillSwitch,
  releaseFleetKillSwitch,
  throwFleetKillSwitch,
} from "#src/scale/fleet/kill-switch.ts";
import { countingLog } from "../failing-parts.ts";
import { describeService } from "../suites/service-suite.ts";
import { createVirtualClock } from "../virtual-clock.ts";
import { createMemoryTables } from "./memory-tables.ts";

const log = createLog({ level: "silent" });
const AT = "2026-06-01T00:00:00.000Z";

describeService("the kill switch of a fleet", async () => {
  const clock = createVirtualClock(0, { ticks: 3 });
  const { database } = createMemoryTables().connect();
  const service = createFleetKillSwitch({ database, clock, log });
  return {
    service,
    async quiet() {
      await clock.advance(10_000);
      expect(clock.sleepers()).toBe(0);
    },
  };
});

describe("the kill switch of a fleet", () => {
  async function twoMembers() {
    const clock = createVirtualClock(0, { ticks: 3 });
    const documents = createMemoryTables();
    const connections = [documents.connect(), documents.connect()] as const;
    const switches = connections.map(({ database }) => createFleetKillSwitch({ database, clock, log }));
    const [first, second] = switches as [FleetKillSwitch, FleetKillSwitch];
    expect(first.isThrown(), "before the first look").toBe(true);
    for (const each of switches) await each.start(new AbortController().signal);
    await clock.advance(100);
    expect(switches.map((each) => each.isThrown())).toEqual([false, false]);
    return { clock, documents, connections, first, second };
  }

  test("the kill switch of a fleet takes effect at once on the member that activates it, and on all members once the database has stored it", async () => {
    const { clock, first, second, connections } = await twoMembers();
    const told = first.throwSwitch("a message", AT);
    expect(first.isThrown()).toBe(true);
    await told;
    await clock.advance(0);
    expect(second.isThrown()).toBe(true);
    expect(await readFleetKillSwitch(connections[1].database)).toEqual({ by: "a message", at: AT });
    expect(await releaseFleetKillSwitch(connections[1].database)).toBe(true);
    await clock.advance(10);
    expect([first.isThrown(), second.isThrown()]).toEqual([false, false]);
  });

  test("the kill switch of a fleet takes effect on other members within a second without notifications", async () => {
    const { clock, connections, first } = await twoMembers();
    connections[0].hears = false;
    await throwFleetKillSwitch(connections[1].database, { by: "the command line", at: AT });
    await clock.advance(1_000);
    expect(first.isThrown()).toBe(true);
  });

  test("the kill switch of a fleet logs once after two seconds that the database is unavailable, and once that the database is back", async () => {
    const clock = createVirtualClock(0, { ticks: 3 });
    const connection = createMemoryTables().connect();
    const { log: counting, lines } = countingLog(100);
    const killSwitch = createFleetKillSwitch({ database: connection.database, clock, log: counting });
    await killSwitch.start(new AbortController().signal);
    await clock.advance(10_000);
    connection.state = "fails";
    await clock.advance(1_900);
    expect(lines()).toBe(0);
    await clock.advance(60_000);
    expect(lines()).toBe(1);
    connection.state = "well";
    await clock.advance(5_000);
    expect(lines()).toBe(2);
    await killSwitch.stop(1_000);
  });

  test.each(["fails", "stalls"] as const)(
    "the kill switch of a fleet counts as active from two seconds after the database %s until the database responds again",
    async (state) => {
      const { clock, connections, first, second } = await twoMembers();
      connections[0].state = state;
      await clock.advance(2_001);
      expect([first.isThrown(), second.isThrown()]).toEqual([true, false]);
      const requests = connections[0].requests;
      await clock.advance(60_000);
      expect(connections[0].requests - requests, "looks in a minute").toBeLessThan(90);
      connections[0].state = "well";
      await clock.advance(2_000);
      expect(first.isThrown()).toBe(false);
    },
  );

  test("the kill switch of a fleet counts as active after a suspended process continues, until the next check of the database", async () => {
    const { clock, first } = await twoMembers();
    clock.suspend(60_000);
    expect(first.isThrown()).toBe(true);
    await clock.advance(10);
    expect(first.isThrown()).toBe(false);
  });

  test("the kill switch of a fleet is stored once an unavailable database responds again", async () => {
    const { clock, connections, documents, first, second } = await twoMembers();
    connections[0].state = "stalls";
    const told = first.throwSwitch("the page", AT);
    await clock.advance(30_000);
    expect(documents.bodies.size).toBe(0);
    connections[0].state = "well";
    await clock.advance(2_000);
    await told;
    expect([...documents.bodies.values()]).toEqual([JSON.stringify({ by: "the page", at: AT })]);
    expect(second.isThrown()).toBe(true);
  });

  test("the kill switch of a fleet stays active on its member when the member stopped before it could be stored", async () => {
    const { clock, connections, first } = await twoMembers();
    connections[0].state = "fails";
    const told = first.throwSwitch("the page", AT);
    const stopped = first.stop(1_000);
    await clock.advance(5_000);
    await Promise.all([told, stopped]);
    expect(first.isThrown()).toBe(true);
  });

  test("the kill switch of a fleet stays active when it is activated again during a release", async () => {
    const { connections, documents } = await twoMembers();
    const [{ database }] = connections;
    await throwFleetKillSwitch(database, { by: "one", at: AT });
    const query = database.query;
    const between = {
      ...database,
      async query(...requests: Parameters<typeof query>) {
        const answer = await query(...requests);
        await throwFleetKillSwitch(database, { by: "another", at: AT });
        return answer;
      },
    };
    expect(await releaseFleetKillSwitch(between)).toBe(false);
    expect([...documents.bodies.values()]).toEqual([JSON.stringify({ by: "another", at: AT })]);
    expect(await releaseFleetKillSwitch(database)).toBe(true);
    expect(documents.bodies.size).toBe(0);
  });
});
