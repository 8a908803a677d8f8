import { describe, expect } from "vitest";
import { absent } from "../../real-servers.ts";
import { describeSink } from "../../suites/sink-suite.ts";
import { createDatabase, type Database, useServer } from "./test-database.ts";

describe.skipIf(absent("postgres"))("the PostgreSQL sink with a real server", () => {
  const server = useServer();

  describeSink("postgres", {
    async make() {
      const database = await createDatabase(server());
      let isAway = false;
      let stopped: readonly number[] = [];
      return {
        sink: database.sink(),
        received: async () =>
          (await isThere(database))
            ? (
                await database.query(`select event_id from (
select event_id, observed_at from plenum.value union all select event_id, observed_at from plenum.alarm) as told order by observed_at`)
              ).map(([id]) => ({ identity: String(id) }))
            : [],
        async breakServer() {
          // A backend process outlives a killed server for a moment, in which it commits what it receives.
          const serving = await processesOf(database);
          await server().kill();
          isAway = true;
          for (const id of serving) signalIfRunning(id, "SIGKILL");
          await expect.poll(() => serving.filter((id) => signalIfRunning(id, 0))).toEqual([]);
        },
        async repairServer() {
          await server().startAgain();
          isAway = false;
        },
        async stall() {
          stopped = await processesOf(database);
          for (const id of stopped) process.kill(id, "SIGSTOP");
        },
        async dispose() {
          for (const id of stopped) process.kill(id, "SIGCONT");
          if (isAway) await server().startAgain();
        },
      };
    },
  });
});

async function isThere(database: Database): Promise<boolean> {
  const [[found] = []] = await database.query("select to_regclass('plenum.value') is not null");
  return found === true;
}

function signalIfRunning(id: number, signal: "SIGKILL" | 0): boolean {
  try {
    return process.kill(id, signal);
  } catch {
    return false;
  }
}

async function processesOf(database: Database): Promise<readonly number[]> {
  const rows = await database.query(
    "select pid from pg_stat_activity where application_name = 'plenum' and datname = current_database()",
  );
  return rows.map(([id]) => Number(id));
}
