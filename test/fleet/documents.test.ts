import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { systemClock } from "#src/core/runtime/clock.ts";
import { createLog } from "#src/core/runtime/log.ts";
import { openFleetDocument } from "#src/scale/fleet/document.ts";
import {
  createFleetKillSwitch,
  readFleetKillSwitch,
  releaseFleetKillSwitch,
  throwFleetKillSwitch,
} from "#src/scale/fleet/kill-switch.ts";
import { absent, type RealServer, startPostgres } from "../real-servers.ts";
import { createRig, type Rig } from "./rig.ts";

const log = createLog({ level: "silent" });

describe.skipIf(absent("postgres"))("fleet documents in PostgreSQL", () => {
  let server: RealServer;
  let rig: Rig;
  beforeAll(async () => {
    server = await startPostgres({ lines: ["fsync = off", "max_connections = 100"] });
  });
  afterAll(() => server.stop());
  afterEach(() => rig.close());

  test("all members read a document, and remove it only in the version that they have read", async () => {
    rig = createRig(server);
    const key = "approvers";
    const open = async () => openFleetDocument<{ readonly at: number }>({ database: await rig.database(), key, log });
    const [one, other] = [await open(), await open()];
    expect([one.read(), one.mark(), await one.remove()]).toEqual([null, "", true]);
    await one.write({ at: 1 });
    expect([one.read(), one.mark()]).toEqual([{ at: 1 }, '{"at":1}']);
    await expect.poll(() => other.read(), { interval: 5 }).toEqual({ at: 1 });
    const [cut] = await rig.ask(
      "select count(pg_terminate_backend(pid))::int from pg_stat_activity where query like 'listen%'",
    );
    expect(cut).not.toEqual([0]);
    await expect.poll(() => rig.ask("select 1 from pg_stat_activity where query like 'listen%'")).not.toEqual([]);
    await rig.ask("update fleet_document set body = '{\"at\":2}'");
    expect(await one.remove()).toBe(false);
    expect(one.read()).toEqual({ at: 2 });
    await other.refresh();
    expect(await other.remove()).toBe(true);
    await expect.poll(() => one.read(), { interval: 5 }).toBeNull();
    const later = await open();
    expect(later.read()).toBeNull();
    for (const each of [one, other, later]) each.close();
  });

  test("a kill switch activated on the command line stops every member", async () => {
    rig = createRig(server);
    const operator = await rig.database();
    const databases = [await rig.database(), await rig.database()];
    const switches = databases.map((database) => createFleetKillSwitch({ database, clock: systemClock, log }));
    for (const each of switches) await each.start(new AbortController().signal);
    const thrown = () => switches.map((each) => each.thrown());
    await expect.poll(thrown, { interval: 5 }).toEqual([false, false]);
    await throwFleetKillSwitch(operator, { by: "the command line", at: "2026-06-01T00:00:00.000Z" });
    await expect.poll(thrown, { interval: 5 }).toEqual([true, true]);
    expect(await readFleetKillSwitch(operator)).toMatchObject({ by: "the command line" });
    await releaseFleetKillSwitch(operator);
    await expect.poll(thrown, { interval: 5 }).toEqual([false, false]);
    expect(await readFleetKillSwitch(operator)).toBeNull();
    for (const each of switches) await each.stop(1_000);
  });
});
