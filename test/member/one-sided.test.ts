import { afterEach, describe, expect, test } from "vitest";
import type { Member } from "#src/scale/member.ts";
import { absent } from "../real-servers.ts";
import { type MemberWays, startMemberWays } from "./member-ways.ts";
import { type Stage, setStage, spending } from "./stage.ts";

let stage: Stage;
let ways: MemberWays;

afterEach(async () => {
  await stage.close();
  await ways.close();
});

const SOURCES = ["east", "north", "south", "west"];

const holding = (member: Member, count: number) =>
  expect.poll(() => member.held().length, { timeout: 90_000, interval: 50 }).toBe(count);

/** Until every source was polled again, in milliseconds since then. */
async function polledAgain(sinceMs: number): Promise<number> {
  const firsts = () =>
    [...stage.services.values()].map(({ simulator: { truth } }) => truth.requests().find(({ atMs }) => atMs > sinceMs));
  await expect.poll(() => firsts().every((first) => first !== undefined), { timeout: 90_000, interval: 50 }).toBe(true);
  return Math.max(...firsts().map((first) => (first?.atMs ?? 0) - sinceMs));
}

describe.skipIf(absent("postgres") || absent("mosquitto"))("a fault between one member and the services", () => {
  test.each(["cut", "stall"] as const)(
    "(%s) moves its sources to the other member, and back once the network is restored",
    async (how) => {
      ways = await startMemberWays();
      stage = await setStage({ sources: SOURCES, proxy: ways.url });
      const [a, b] = [await stage.member("a"), await stage.member("b")];
      await a.start();
      await holding(a, 4);
      await b.start();
      await Promise.all([holding(a, 2), holding(b, 2)]);
      await polledAgain(Date.now());
      const faultMs = Date.now();
      ways[how]("a");
      await holding(b, 4);
      const { takeovers } = await b.fleet();
      expect(takeovers.filter(({ reason }) => reason === "unreachable").map(({ to }) => to)).toEqual(["b", "b"]);
      await polledAgain(faultMs);
      ways.heal("a");
      await Promise.all([holding(a, 2), holding(b, 2)]);
      for (const service of stage.services.values()) expect(spending(service)).toMatchObject({ refused: 0 });
    },
    240_000,
  );

  test("moves no source when no member reaches its service", async () => {
    ways = await startMemberWays();
    stage = await setStage({ sources: SOURCES, proxy: ways.url });
    const [a, b] = [await stage.member("a"), await stage.member("b")];
    await a.start();
    await holding(a, 4);
    await b.start();
    await Promise.all([holding(a, 2), holding(b, 2)]);
    const { takeovers } = await a.fleet();
    for (const member of ["a", "b"]) ways.cut(member);
    const reports = async () => (await a.fleet()).members.map(({ unreached }) => unreached.length);
    await expect.poll(reports, { timeout: 90_000, interval: 100 }).toEqual([4, 4]);
    expect((await b.fleet()).takeovers).toEqual(takeovers);
  }, 240_000);
});
