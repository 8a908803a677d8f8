import type { Config } from "../../app/config/config.ts";
import { ConfigError } from "../../core/errors/errors.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import { createLog } from "../../core/runtime/log.ts";
import { openStore } from "../../engine/store/open.ts";
import type { Store } from "../../engine/store/store.ts";
import { type Part, united } from "../../engine/store/united.ts";
import { openStateDatabase } from "../../scale/postgres/open.ts";
import type { StateDatabase } from "../../scale/postgres/state-database.ts";
import { openShard } from "../../scale/postgres/store.ts";

/** Which state is meant: that of a folder, or in a fleet that of one source; without one, of all of them as one. */
export interface WhichState {
  readonly config: Pick<Config, "state" | "sources">;
  readonly source?: string | undefined;
}

/** Looks at the state, beside a worker that may be running. Throws ConfigError where there is none. */
export async function lookAtState<T>(which: WhichState, look: (store: Store) => Promise<T>): Promise<T> {
  return use(await openState(which, true), look);
}

/** The same for a folder, whatever a configuration says of it. */
export async function lookAtFolder<T>(folder: string, look: (store: Store) => Promise<T>): Promise<T> {
  return use(await openFolder(folder, true), look);
}

/** As `lookAtState`, where it is no trouble that there is no state yet: then null. */
export async function lookAtStateIfAny<T>(
  which: WhichState,
  look: (store: Store) => Promise<T>,
): Promise<T | null> {
  let store: Store;
  try {
    store = await openState(which, true);
  } catch (error) {
    if (error instanceof ConfigError) return null;
    throw error;
  }
  return use(store, look);
}

/** The same for what is counted in each part for itself: the states of a fleet's sources, and all of them as one. */
export async function lookAtParts<T>(
  config: WhichState["config"],
  sources: readonly string[],
  look: (parts: readonly Store[], all: Store) => Promise<T>,
): Promise<T> {
  if (config.state.postgres === undefined) return lookAtState({ config }, (store) => look([store], store));
  const { parts, close } = await openParts(config.state.postgres, sources, "reader");
  try {
    return await look(
      parts.map(({ store }) => store),
      united(parts),
    );
  } finally {
    await close();
  }
}

/** Changes each of the states that `lookAtParts` looks at, beside a worker that may be running. */
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

/** For a look, or for an operator's change, beside a worker that may be running; whoever opens it closes it. */
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
  return { ...united(parts), close };
}

interface OpenParts {
  readonly parts: readonly Part[];
  close(): Promise<void>;
}

async function openParts(
  postgres: NonNullable<Config["state"]["postgres"]>,
  sources: readonly string[],
  as: "reader" | "operator",
): Promise<OpenParts> {
  const database = await openForCommand(postgres);
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

/** A command asks one thing after the other, and listens for nothing. */
const CONNECTIONS = 2;

/** Lends the database of the fleet, beside its members. Throws `ConfigError` where the configuration has none. */
export async function withStateDatabase<T>(
  { state }: Pick<Config, "state">,
  use: (database: StateDatabase) => Promise<T>,
): Promise<T> {
  if (state.postgres === undefined) {
    throw new ConfigError("There is no fleet: the configuration keeps its state in a folder.", {
      hint: "A fleet shares state.postgres; docs/scaling.md says when that is worth it.",
    });
  }
  const database = await openForCommand(state.postgres);
  try {
    return await use(database);
  } finally {
    await database.close();
  }
}

/** A schema that is not of this version is refused, and never changed by a command. */
export function openForCommand(config: NonNullable<Config["state"]["postgres"]>): Promise<StateDatabase> {
  return openStateDatabase({
    config,
    clock: systemClock,
    log: createLog({ level: "error" }),
    migrate: false,
    connections: CONNECTIONS,
  });
}
