import { Client } from "pg";
import { afterEach, describe, expect, test, vi } from "vitest";
import { createLog } from "#src/core/runtime/log.ts";
import { absent } from "../real-servers.ts";
import { type Stage, setStage } from "./stage.ts";

let stage: Stage;

afterEach(() => stage.close());

const SOURCES = ["north", "south"];
const CONNECTIONS = 2;

describe.skipIf(absent("postgres") || absent("mosquitto"))("a member under load", () => {
  test("renews its lease and detects the kill switch while every connection of its sources is waiting", async () => {
    stage = await setStage({ sources: SOURCES, connections: CONNECTIONS });
    const lines: string[] = [];
    const log = createLog({ level: "info", destination: { write: (line: string) => void lines.push(line) } });
    const member = await stage.member("a", log);
    await member.start();
    await vi.waitFor(() => expect(member.held()).toEqual(SOURCES), { timeout: 30_000, interval: 100 });

    const client = new Client({ connectionString: stage.databaseUrl });
    await client.connect();
    client.on("error", () => {});
    const first = async (text: string) => Number((await client.query({ text, rowMode: "array" })).rows[0]?.[0]);
    const renewedMs = () => first("select extract(epoch from seen_at) * 1000 from plenum_state.member");
    const waiting = () =>
      first("select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = 'plenum'");

    await client.query("begin; lock table plenum_state.event, plenum_state.document in access exclusive mode");
    await vi.waitFor(async () => expect(await waiting()).toBeGreaterThanOrEqual(CONNECTIONS), {
      timeout: 20_000,
      interval: 50,
    });
    let last = await renewedMs();
    // Without a renewal the lease would be over after 8 s, and so would be all that hangs on it.
    for (let renewals = 0; renewals < 4; renewals += 1) {
      const before = last;
      await vi.waitFor(async () => expect(await renewedMs()).toBeGreaterThan(before), {
        timeout: 30_000,
        interval: 100,
      });
      last = await renewedMs();
    }
    expect(await waiting()).toBeGreaterThanOrEqual(CONNECTIONS);
    await client.end();

    expect(member.held()).toEqual(SOURCES);
    const said = lines.join("");
    expect(said).toContain("sources were taken");
    expect(said).not.toContain("the kill switch of the fleet cannot be looked at");
    expect(said).not.toContain("this member cannot take part");
    expect(said).not.toContain("were lost");
  }, 120_000);
});
