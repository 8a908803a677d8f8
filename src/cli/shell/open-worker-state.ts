import type { Config } from "../../app/config/config.ts";
import { ConfigError } from "../../core/errors/errors.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import { createLog } from "../../core/runtime/log.ts";
import { joinSourceStores, type SourceStore } from "../../engine/store/joined-stores.ts";
import { openStore } from "../../engine/store/open.ts";
import type { Store } from "../../engine/store/store.ts";
import { openStateDatabase } from "../../scale/postgres/open-state-database.ts";
import { openSourceState } from "../../scale/postgres/source-state.ts";
import type { StateDatabase } from "../../scale/postgres/state-database.ts";

type PostgresConfig = NonNullable<Config["state"]["postgres"]>;

/** Selects which state to open: in a fleet the state of `source`; without `source`, the state of all sources. */
export interface StateSelector {
  readonly config: Pick<Config, "state" | "sources">;
  readonly source?: string | undefined;
}

export function readState<T>(stateSelector: StateSelector, readStore: (store: Store) => Promise<T>): Promise<T> {
  return useStateStore(stateSelector, true, readStore);
}

export async function readStateIfAny<T>(
  state: StateSelector,
  useStore: (store: Store) => Promise<T>,
): Promise<T | null> {
  const store = await openState(state, true).catch((error: unknown) => {
    if (error instanceof ConfigError) return null;
    throw error;
  });
  return store === null ? null : useAndClose(store, useStore);
}

/** Opens the state for `useStore` and closes it afterwards. A worker may be running. */
export async function useStateStore<T>(
  stateSelector: StateSelector,
  readOnly: boolean,
  useStore: (store: Store) => Promise<T>,
): Promise<T> {
  return useAndClose(await openState(stateSelector, readOnly), useStore);
}

async function openState({ config, source }: StateSelector, readOnly: boolean): Promise<Store> {
  const sources = source === undefined ? Object.keys(config.sources) : [source];
  const { parts, close } = await openSourceStores(config.state, sources, readOnly);
  return { ...joinSourceStores(parts), close };
}

export async function readSourceStores<T>(
  { state }: StateSelector["config"],
  sources: readonly string[],
  readStores: (stores: readonly Store[], joinedStore: Store) => Promise<T>,
): Promise<T> {
  return useAndClose(await openSourceStores(state, sources, true), ({ parts }) =>
    readStores(listStores(parts), joinSourceStores(parts)),
  );
}

export async function changeSourceStores<T>(
  { state, sources }: StateSelector["config"],
  changeStores: (stores: readonly Store[]) => Promise<T>,
): Promise<T> {
  return useAndClose(await openSourceStores(state, Object.keys(sources), false), ({ parts }) =>
    changeStores(listStores(parts)),
  );
}

const listStores = (parts: readonly SourceStore[]): readonly Store[] => parts.map(({ store }) => store);

async function openSourceStores({ folder, postgres }: Config["state"], sources: readonly string[], readOnly: boolean) {
  if (postgres === undefined) {
    const store = await openStore({ folder, clock: systemClock, readOnly, locksFolder: false });
    return { parts: [{ source: "", store }], close: () => store.close() };
  }
  const database = await openStateDatabaseForCommand(postgres);
  const sourceStoreOptions = {
    access: readOnly ? "reader" : "operator",
    clock: systemClock,
    log: createLog({ level: "error" }),
  } as const;
  const openSourceStore = async (source: string): Promise<SourceStore> => ({
    source,
    store: await openSourceState(database, { source, ...sourceStoreOptions }),
  });
  try {
    const sourceStores = await Promise.all(sources.map(openSourceStore));
    const closeStores = async () => {
      await Promise.all(sourceStores.map(({ store }) => store.close()));
      await database.close();
    };
    return { parts: sourceStores, close: closeStores };
  } catch (error) {
    await database.close();
    throw error;
  }
}

export async function useAndClose<R extends { close(): Promise<void> }, T>(
  resource: R,
  useResource: (resource: R) => Promise<T>,
): Promise<T> {
  try {
    return await useResource(resource);
  } finally {
    await resource.close();
  }
}

/** Opens the state database for `useDatabase`. Throws ConfigError if the state is in a folder. */
export async function useStateDatabase<T>(
  { state }: Pick<Config, "state">,
  useDatabase: (database: StateDatabase) => Promise<T>,
): Promise<T> {
  if (state.postgres === undefined)
    throw new ConfigError("There is no fleet: the configuration keeps its state in a folder.", {
      hint: "A fleet shares state.postgres; docs/scaling.md says when that is worth it.",
    });
  return useAndClose(await openStateDatabaseForCommand(state.postgres), useDatabase);
}

/** Opens the database without migrating it: a database with another schema version is rejected. */
function openStateDatabaseForCommand(config: PostgresConfig): Promise<StateDatabase> {
  const log = createLog({ level: "error" });
  return openStateDatabase({ config, clock: systemClock, log, migrate: false, connections: 2 });
}
