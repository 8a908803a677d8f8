import { afterAll, beforeAll } from "vitest";
import { type Clock, systemClock } from "#src/core/runtime/clock.ts";
import { PostgresState } from "#src/engine/store/state-config.ts";
import { openStateDatabase } from "#src/scale/postgres/open-state-database.ts";
import { openSourceState } from "#src/scale/postgres/source-state.ts";
import type { SourceStateAccess, StateDatabase, StateDatabaseOptions } from "#src/scale/postgres/state-database.ts";
import { contextFor } from "../../connectors/context.ts";
import type { Location } from "../../delivery/dispatcher-harness.ts";
import { queryPostgres } from "../../query-postgres.ts";
import { type RealServer, startPostgres } from "../../real-servers.ts";

export const SOURCE = "main";

let schemas = 0;

export type Harness = ReturnType<typeof createHarness>;

interface Opening extends Partial<Omit<StateDatabaseOptions, "config">> {
  readonly config?: Readonly<Record<string, unknown>>;
}

/** Starts PostgreSQL for the tests of a `describe`; returns the server once a test runs. */
export function startServerForTests(options: Parameters<typeof startPostgres>[0] = {}): () => RealServer {
  let server: RealServer;
  beforeAll(async () => {
    server = await startPostgres({ lines: ["fsync = off"], ...options });
  });
  afterAll(() => server?.stop());
  return () => server;
}

export function createHarness(server: Pick<RealServer, "port">, port = server.port) {
  const schema = `test_${process.pid}_${schemas++}`;
  const config = PostgresState.parse({ url: urlAt(port), schema });
  const opened: StateDatabase[] = [];
  const { clock: _, ...context } = contextFor("state");
  /** Runs a statement as the owner of the database; returns rows as arrays. */
  const query = (text: string, values: readonly unknown[] = []) => queryPostgres(server, "postgres", text, values);
  return {
    schema,
    config,
    query,
    async open({ config: more = {}, ...options }: Opening = {}): Promise<StateDatabase> {
      const database = await openStateDatabase({
        config: PostgresState.parse({ url: urlAt(port), schema, ...more }),
        ...{ clock: systemClock, log: context.log, migrate: true },
        ...options,
      });
      opened.push(database);
      return database;
    },
    async acquire(epoch: number, source = SOURCE): Promise<void> {
      await query(
        `insert into ${schema}.source (name, epoch) values ($1, $2)
         on conflict (name) do update set epoch = excluded.epoch`,
        [source, epoch],
      );
    },
    shard: (database: StateDatabase, as: SourceStateAccess = { epoch: 1 }, clock: Clock = systemClock) =>
      openSourceState(database, { source: SOURCE, access: as, clock, log: context.log }),
    async close(): Promise<void> {
      await Promise.all(opened.splice(0).map((database) => database.close()));
      await query(`drop schema if exists ${schema} cascade`);
    },
  };
}

export function urlAt(port: number, user = "postgres"): string {
  return `postgresql://${user}@127.0.0.1:${port}/postgres?sslmode=disable`;
}

/** A schema of its own; virtual time waits for the server's replies. */
export function locationOn(server: RealServer): Location {
  const harness = createHarness(server);
  let asked = 0;
  let epoch = 0;
  let database: StateDatabase | undefined;

  async function counted<T>(reply: Promise<T>): Promise<T> {
    asked += 1;
    try {
      return await reply;
    } finally {
      asked -= 1;
    }
  }

  const counting = (opened: StateDatabase): StateDatabase => ({
    ...opened,
    query: (...what) => counted(opened.query(...what)),
    transact: (...what) => counted(opened.transact(...what)),
    transaction: (what) => counted(opened.transaction(what)),
  });

  return {
    folder: "",
    isWaiting: () => asked > 0,
    async open(clock: Clock) {
      database ??= counting(await harness.open());
      epoch += 1;
      await harness.acquire(epoch);
      return harness.shard(database, { epoch }, clock);
    },
    dispose: () => harness.close(),
  };
}
