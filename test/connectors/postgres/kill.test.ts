import { describe, expect, onTestFinished, test } from "vitest";
import { absent, startPostgres } from "../../real-servers.ts";
import { replay, seed } from "../../seed.ts";
import { sized } from "../../sizes.ts";
import { landUnderKills } from "./kill-campaign.ts";
import { createDatabase } from "./test-database.ts";

const KILLS = sized(20, 6);

describe.skipIf(absent("postgres"))("the PostgreSQL sink with kill -9 during commits", () => {
  test(`no row is lost or duplicated when the worker is killed ${KILLS} times and the server is killed at times`, async () => {
    const server = await startPostgres({ lines: ["fsync = off"] });
    onTestFinished(() => server.stop());
    const landed = await landUnderKills(server, await createDatabase(server), KILLS, seed);
    expect(landed, replay).toMatchObject({ lost: 0, doubled: 0, dead: 0 });
    expect(landed.rows, replay).toBeGreaterThan(50 * KILLS);
  });
});
