import { expect, test } from "vitest";
import type { FleetMember } from "#src/scale/fleet-member.ts";
import { createFleet, describeWithServers, expectQuotaMet, holds } from "./fleet-harness.ts";
import { startMemberProxy } from "./member-proxy.ts";

const SOURCES = ["east", "north", "south", "west"];

describeWithServers("a fault between one member and the services", () => {
  test.each(["cut", "stall"] as const)(
    "a network fault (%s) moves the sources of one member to the other, and back once the network is restored",
    async (how) => {
      const ways = await startMemberProxy();
      const harness = await createFleet({ sources: SOURCES, proxy: ways.url });
      const [a, b] = (await harness.started("a", "b")) as [FleetMember, FleetMember];
      const polledSince = (sinceMs: number) =>
        expect
          .poll(() =>
            [...harness.services.values()].every(({ simulator }) =>
              simulator.truth.requests().some(({ atMs }) => atMs > sinceMs),
            ),
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
      await expect.poll(() => [a, b].map((member) => member.held().length)).toEqual([2, 2]);
      expectQuotaMet(harness);
    },
  );
});
