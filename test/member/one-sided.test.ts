import { expect, test } from "vitest";
import { startMemberProxy } from "./member-proxy.ts";
import { describeWithServers, expectQuotaKept, holds, POLL, setStage } from "./stage.ts";

const SOURCES = ["east", "north", "south", "west"];

async function twoMembers() {
  const ways = await startMemberProxy();
  const stage = await setStage({ sources: SOURCES, proxy: ways.url });
  const [a, b] = await stage.started("a", "b");
  if (a === undefined || b === undefined) throw new Error("A member is missing.");
  return { ways, stage, a, b };
}

describeWithServers("a fault between one member and the services", () => {
  test.each(["cut", "stall"] as const)(
    "(%s) moves its sources to the other member, and back once the network is restored",
    async (how) => {
      const { ways, stage, a, b } = await twoMembers();
      const polledSince = (sinceMs: number) =>
        expect
          .poll(
            () =>
              [...stage.services.values()].every(({ simulator }) =>
                simulator.truth.requests().some(({ atMs }) => atMs > sinceMs),
              ),
            POLL,
          )
          .toBe(true);
      await polledSince(Date.now());
      const faultMs = Date.now();
      ways[how]("a");
      await holds(b, SOURCES);
      const { takeovers } = await b.fleet();
      expect(takeovers.filter(({ reason }) => reason === "unreachable").map(({ to }) => to)).toEqual(["b", "b"]);
      await polledSince(faultMs);
      ways.heal("a");
      await expect.poll(() => [a, b].map((member) => member.held().length), POLL).toEqual([2, 2]);
      expectQuotaKept(stage);
    },
    240_000,
  );

  test("moves no source when no member reaches its service", async () => {
    const { ways, a, b } = await twoMembers();
    const { takeovers } = await a.fleet();
    for (const member of ["a", "b"]) ways.cut(member);
    const reports = async () => (await a.fleet()).members.map(({ unreached }) => unreached.length);
    await expect.poll(reports, POLL).toEqual([4, 4]);
    expect((await b.fleet()).takeovers).toEqual(takeovers);
  }, 240_000);
});
