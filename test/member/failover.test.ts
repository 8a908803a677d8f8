import { expect, test } from "vitest";
import { queryPostgres } from "../query-postgres.ts";
import { createFleet, describeWithServers, expectQuotaMet } from "./fleet-harness.ts";

const SOURCES = ["east", "north"];

describeWithServers("a fleet whose database fails over", () => {
  test("a fleet continues on the new primary database with all committed events", async () => {
    const harness = await createFleet({ sources: SOURCES, hasStandby: true });
    const { standby } = harness;
    if (standby === null) throw new Error("There is no standby.");
    const observer = await harness.observe();
    const [a, b] = [await harness.member("a"), await harness.member("b")];
    await a.start();
    await b.start();
    const held = () => [...a.held(), ...b.held()].toSorted();
    await expect.poll(held).toEqual(SOURCES);
    const buildings = [...harness.services.values()];
    const raiseAlarms = () => {
      for (const { simulator, siteId } of buildings) simulator.control.raiseAlarm({ siteId });
    };
    raiseAlarms();
    await expect.poll(() => observer.idsOf("alarm-raised").length).toBe(2);

    await harness.database.kill();
    const requests = () => buildings.map(({ simulator }) => simulator.truth.requests().length);
    await expect.poll(() => [a.held(), b.held()]).toEqual([[], []]);
    const quiet = requests();
    raiseAlarms();
    expect(requests()).toEqual(quiet);

    const statements = [
      "select pg_promote()",
      "alter system reset synchronous_standby_names",
      "select pg_reload_conf()",
    ];
    for (const statement of statements) await queryPostgres(standby, "postgres", statement);
    const promotedMs = Date.now();
    await expect.poll(held).toEqual(SOURCES);
    await expect.poll(() => observer.idsOf("alarm-raised").length).toBe(4);
    for (const { simulator } of buildings)
      expect(simulator.truth.requests().some(({ atMs }) => atMs > promotedMs)).toBe(true);
    expect(observer.idsOf("alarm-resolved")).toEqual([]);
    // The other member may have taken both sources before this member found the server.
    await expect.poll(() => a.fleet()).toMatchObject({ trouble: null });
    expectQuotaMet(harness);
  });
});
