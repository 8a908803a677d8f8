import { systemClock } from "../clock.ts";
import { ConfigError } from "../errors.ts";
import { openStore } from "../store/open.ts";
import type { Store } from "../store/store.ts";

/** Looks at the state, beside a worker that may be running. Throws ConfigError where there is none. */
export async function lookAtState<T>(folder: string, look: (store: Store) => Promise<T>): Promise<T> {
  return lookAt(await openStore({ folder, clock: systemClock, readOnly: true }), look);
}

/** The same where it is no trouble that there is no state yet: then null. */
export async function lookAtStateIfAny<T>(
  folder: string,
  look: (store: Store) => Promise<T>,
): Promise<T | null> {
  let store: Store;
  try {
    store = await openStore({ folder, clock: systemClock, readOnly: true });
  } catch (error) {
    if (error instanceof ConfigError) return null;
    throw error;
  }
  return lookAt(store, look);
}

async function lookAt<T>(store: Store, look: (store: Store) => Promise<T>): Promise<T> {
  try {
    return await look(store);
  } finally {
    await store.close();
  }
}
