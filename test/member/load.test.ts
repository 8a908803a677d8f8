import { expect, test } from "vitest";
import { createLog } from "#src/core/runtime/log.ts";
import { connectTo } from "../query-postgres.ts";
import { createFleet, describeWithServers, holds } from "./fleet-harness.ts";

const SOURCES = ["north", "south"];
const CONNECTIONS = 2;

describeWithServers("a member under load", () => {
  test("a member under load renews its lease and sees the kill switch while all connections of its sources are blocked", async () => {
    const harness = await createFleet({ sources: SOURCES, connections: CONNECTIONS });
    const lines: string[] = [];
    const log = createLog({ level: "info", destination: { write: (line: string) => void lines.push(line) } });
    const member = await harness.member("a", log);
    await member.start();
    await holds(member, SOURCES);

    const client = await connectTo(harness.database, "plenum");
    const renewals = async () => Number((await harness.query("select renewals::int from member"))[0]?.[0]);
    const waiting = () =>
      harness.query("select count(*)::int from pg_stat_activity where wait_event_type = 'Lock' and datname = 'plenum'");
    await client.query("begin; lock table plenum_state.event, plenum_state.document in access exclusive mode");
    await expect.poll(waiting).toEqual([[CONNECTIONS]]);
    // The lease would end 8 s after the last renewal.
    const before = await renewals();
    await expect.poll(renewals).toBeGreaterThanOrEqual(before + 4);
    expect(await waiting()).toEqual([[CONNECTIONS]]);
    await client.end();

    expect(member.held()).toEqual(SOURCES);
    const logged = lines.join("");
    expect(logged).toContain("sources were taken");
    expect(logged).not.toMatch(/kill switch of the fleet cannot be looked at|member cannot take part|were lost/);
  });
});
