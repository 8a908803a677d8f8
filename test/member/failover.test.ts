import { Client } from "pg";
import { describe, expect, onTestFinished, test } from "vitest";
import { observe } from "../connectors/mqtt/observer.ts";
import { absent } from "../real-servers.ts";
import { setStage, spending } from "./stage.ts";

const SOURCES = ["east", "north"];
const LONG = { timeout: 60_000, interval: 50 };

describe.skipIf(absent("postgres") || absent("mosquitto"))("a fleet whose database fails over", () => {
  test("continues on the new primary database with all committed events", async () => {
    const stage = await setStage({ sources: SOURCES, hasStandby: true });
    onTestFinished(() => stage.close());
    const { standby } = stage;
    if (standby === null) throw new Error("There is no standby.");
    const observer = await observe(stage.broker.url);
    onTestFinished(() => observer.leave());
    const told = (kind: string) => {
      const events = observer.heard.filter(({ topic }) => topic.endsWith(`/event/${kind}`));
      return new Set(events.map(({ json }) => String(json.id))).size;
    };
    const [a, b] = [await stage.member("a"), await stage.member("b")];
    await a.start();
    await b.start();
    const held = () => [...a.held(), ...b.held()].toSorted();
    await expect.poll(held, LONG).toEqual(SOURCES);
    const buildings = [...stage.services.values()];
    for (const { simulator, siteId } of buildings) simulator.control.raiseAlarm({ siteId });
    await expect.poll(() => told("alarm-raised"), LONG).toBe(2);

    await stage.database.kill();
    const goneMs = Date.now();
    // Nobody takes writes: nothing is polled, because nothing could be remembered.
    const requests = () => buildings.map(({ simulator }) => simulator.truth.requests().length);
    await expect.poll(() => [a.held(), b.held()], LONG).toEqual([[], []]);
    const quiet = requests();
    for (const { simulator, siteId } of buildings) simulator.control.raiseAlarm({ siteId });
    expect(requests()).toEqual(quiet);

    const client = new Client({ connectionString: standby.url });
    await client.connect();
    await client.query("select pg_promote()");
    await client.query("alter system reset synchronous_standby_names");
    await client.query("select pg_reload_conf()");
    await client.end();
    const promotedMs = Date.now();
    await expect.poll(held, LONG).toEqual(SOURCES);
    await expect.poll(() => told("alarm-raised"), LONG).toBe(4);
    const asked = buildings.map(({ simulator }) =>
      Math.min(...simulator.truth.requests().flatMap(({ atMs }) => (atMs > promotedMs ? [atMs] : []))),
    );
    for (const atMs of asked) expect(atMs).toBeLessThan(Number.POSITIVE_INFINITY);
    expect(promotedMs).toBeGreaterThan(goneMs);
    expect(told("alarm-resolved")).toBe(0);
    // The other may have taken both and told of them before this one has found the server.
    await expect.poll(() => a.fleet(), LONG).toMatchObject({ trouble: null });
    for (const building of buildings) expect(spending(building).refused).toBe(0);
    for (const building of buildings) expect(spending(building).most).toBeLessThanOrEqual(20);
  }, 180_000);
});
