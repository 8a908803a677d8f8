import { type Clock, systemClock } from "#src/core/runtime/clock.ts";
import type { Log } from "#src/core/runtime/log.ts";
import { PostgresState } from "#src/engine/store/state-config.ts";
import type { Store } from "#src/engine/store/store.ts";
import { openStateDatabase } from "#src/scale/postgres/open-state-database.ts";
import { openSourceState } from "#src/scale/postgres/source-state.ts";
import type { SourceStateAccess, StateDatabase } from "#src/scale/postgres/state-database.ts";
import { askAt } from "../../ask-postgres.ts";
import { contextFor } from "../../connectors/context.ts";
import type { Place } from "../../delivery/dispatcher-rig.ts";
import type { RealServer } from "../../real-servers.ts";

export const SOURCE = "main";

let schemas = 0;

export interface Rig {
  readonly schema: string;
  readonly config: PostgresState;
  /** Runs a statement as the owner of the database; returns rows as arrays. */
  ask(text: string, values?: readonly unknown[]): Promise<readonly (readonly unknown[])[]>;
  open(options?: Opening): Promise<StateDatabase>;
  hold(epoch: number, source?: string): Promise<void>;
  shard(database: StateDatabase, as?: SourceStateAccess, clock?: Clock): Promise<Store>;
  close(): Promise<void>;
}

interface Opening {
  readonly config?: Readonly<Record<string, unknown>>;
  readonly migrate?: boolean;
  readonly log?: Log;
  readonly statementTimeoutMs?: number;
  readonly allowsLongTransaction?: boolean;
}

export function createRig(server: Pick<RealServer, "port">, port = server.port): Rig {
  const schema = `test_${process.pid}_${schemas++}`;
  const config = PostgresState.parse({ url: urlAt(port), schema });
  const opened: StateDatabase[] = [];
  const { clock: _, ...context } = contextFor("state");
  const ask: Rig["ask"] = (text, values = []) => askAt(server, "postgres", text, values);
  return {
    schema,
    config,
    ask,
    async open({ config: more = {}, migrate = true, log = context.log, ...limits } = {}) {
      const database = await openStateDatabase({
        config: PostgresState.parse({ url: urlAt(port), schema, ...more }),
        clock: systemClock,
        log,
        migrate,
        ...limits,
      });
      opened.push(database);
      return database;
    },
    async hold(epoch, source = SOURCE) {
      await ask(
        `insert into ${schema}.source (name, epoch) values ($1, $2)
         on conflict (name) do update set epoch = excluded.epoch`,
        [source, epoch],
      );
    },
    shard: (database, as = { epoch: 1 }, clock = systemClock) =>
      openSourceState(database, { source: SOURCE, access: as, clock, log: context.log }),
    async close() {
      await Promise.all(opened.splice(0).map((database) => database.close()));
      await ask(`drop schema if exists ${schema} cascade`);
    },
  };
}

export function urlAt(port: number, user = "postgres"): string {
  return `postgresql://${user}@127.0.0.1:${port}/postgres?sslmode=disable`;
}

/** A schema of its own; virtual time waits for the server's replies. */
export function placeOn(server: RealServer): Place {
  const rig = createRig(server);
  let asked = 0;
  let epoch = 0;
  let database: StateDatabase | undefined;

  async function counted<T>(answer: Promise<T>): Promise<T> {
    asked += 1;
    try {
      return await answer;
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
      database ??= counting(await rig.open());
      epoch += 1;
      await rig.hold(epoch);
      return rig.shard(database, { epoch }, clock);
    },
    dispose: () => rig.close(),
  };
}
