import type { Config } from "../../app/config/config.ts";
import { ConfigError } from "../../core/errors/errors.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import { createLog } from "../../core/runtime/log.ts";
import { joinStores, type SourceStore } from "../../engine/store/joined-stores.ts";
import { openStore } from "../../engine/store/open.ts";
import type { Store } from "../../engine/store/store.ts";
import { openStateDatabase } from "../../scale/postgres/open.ts";
import type { StateDatabase } from "../../scale/postgres/state-database.ts";
import { openShard } from "../../scale/postgres/store.ts";

/** Selects a state: that of a folder, or in a fleet that of one source, or of all sources combined. */
export interface WhichState {
  readonly config: Pick<Config, "state" | "sources">;
  readonly source?: string | undefined;
}

/** Reads the state; a worker may be running. Throws ConfigError if there is no state. */
export async function readState<T>(which: WhichState, look: (store: Store) => Promise<T>): Promise<T> {
  return withState(which, true, look);
}

/** Reads the state in a folder. */
export async function readStateFolder<T>(folder: string, look: (store: Store) => Promise<T>): Promise<T> {
  return use(await openFolder(folder, true), look);
}

/** Reads the state; null if there is none yet. */
export async function readStateIfAny<T>(which: WhichState, look: (store: Store) => Promise<T>): Promise<T | null> {
  let store: Store;
  try {
    store = await openState(which, true);
  } catch (error) {
    if (error instanceof ConfigError) return null;
    throw error;
  }
  return use(store, look);
}

/** Reads the state of each source of a fleet, and all of them combined. */
export async function readParts<T>(
  config: WhichState["config"],
  sources: readonly string[],
  look: (parts: readonly Store[], all: Store) => Promise<T>,
): Promise<T> {
  if (config.state.postgres === undefined) return readState({ config }, (store) => look([store], store));
  const { parts, close } = await openParts(config.state.postgres, sources, "reader");
  try {
    return await look(
      parts.map(({ store }) => store),
      joinStores(parts),
    );
  } finally {
    await close();
  }
}

/** Changes the state of each source of a fleet; a worker may be running. */
export async function changeParts<T>(
  config: WhichState["config"],
  change: (parts: readonly Store[]) => Promise<T>,
): Promise<T> {
  const { postgres } = config.state;
  if (postgres === undefined) return use(await openState({ config }, false), (store) => change([store]));
  const { parts, close } = await openParts(postgres, Object.keys(config.sources), "operator");
  try {
    return await change(parts.map(({ store }) => store));
  } finally {
    await close();
  }
}

/** Reads or changes the state next to a worker that may be running. */
export async function withState<T>(
  which: WhichState,
  readOnly: boolean,
  work: (store: Store) => Promise<T>,
): Promise<T> {
  return use(await openState(which, readOnly), work);
}

/** Opens the state next to a worker that may be running. The caller closes it. */
export async function openState(which: WhichState, readOnly: boolean): Promise<Store> {
  const { state } = which.config;
  if (state.postgres === undefined) return openFolder(state.folder, readOnly);
  return openFleet(which, state.postgres, readOnly);
}

function openFolder(folder: string, readOnly: boolean): Promise<Store> {
  return openStore({ folder, clock: systemClock, readOnly, lock: false });
}

async function openFleet(
  { config, source }: WhichState,
  postgres: NonNullable<Config["state"]["postgres"]>,
  readOnly: boolean,
): Promise<Store> {
  const names = source === undefined ? Object.keys(config.sources) : [source];
  const { parts, close } = await openParts(postgres, names, readOnly ? "reader" : "operator");
  return { ...joinStores(parts), close };
}

interface OpenParts {
  readonly parts: readonly SourceStore[];
  close(): Promise<void>;
}

async function openParts(
  postgres: NonNullable<Config["state"]["postgres"]>,
  sources: readonly string[],
  as: "reader" | "operator",
): Promise<OpenParts> {
  const database = await openStateDatabaseForCommand(postgres);
  const log = createLog({ level: "error" });
  try {
    const parts = await Promise.all(
      sources.map(async (source) => ({
        source,
        store: await openShard(database, { source, as, clock: systemClock, log }),
      })),
    );
    return {
      parts,
      async close() {
        await Promise.all(parts.map(({ store }) => store.close()));
        await database.close();
      },
    };
  } catch (error) {
    await database.close();
    throw error;
  }
}

async function use<T>(store: Store, work: (store: Store) => Promise<T>): Promise<T> {
  try {
    return await work(store);
  } finally {
    await store.close();
  }
}

/** Connections of a command, which sends one query at a time. */
const CONNECTIONS = 2;

/** Gives `use` the database of the fleet. Throws ConfigError if the configuration has none. */
export async function withStateDatabase<T>(
  { state }: Pick<Config, "state">,
  use: (database: StateDatabase) => Promise<T>,
): Promise<T> {
  if (state.postgres === undefined) {
    throw new ConfigError("There is no fleet: the configuration keeps its state in a folder.", {
      hint: "A fleet shares state.postgres; docs/scaling.md says when that is worth it.",
    });
  }
  const database = await openStateDatabaseForCommand(state.postgres);
  try {
    return await use(database);
  } finally {
    await database.close();
  }
}

/** Opens the database of the fleet. A command rejects another schema version and never migrates it. */
export function openStateDatabaseForCommand(config: NonNullable<Config["state"]["postgres"]>): Promise<StateDatabase> {
  return openStateDatabase({
    config,
    clock: systemClock,
    log: createLog({ level: "error" }),
    migrate: false,
    connections: CONNECTIONS,
  });
}
