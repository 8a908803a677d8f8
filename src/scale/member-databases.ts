import type { Clock } from "../core/runtime/clock.ts";
import type { Log } from "../core/runtime/log.ts";
import type { PostgresState } from "../engine/store/config.ts";
import { openStateDatabase } from "./postgres/open.ts";
import type { StateDatabase } from "./postgres/state-database.ts";

/** The connections of a member: of the sources that it holds, and of what all of them hang on. */
export interface MemberDatabases {
  /** For the sources' states: as many connections as are configured. */
  readonly database: StateDatabase;
  /** The same tables for leases, kill switch and guards, which no load of the sources delays. */
  readonly urgent: StateDatabase;
  close(): Promise<void>;
}

/** Two at work, one for a person who looks at the fleet meanwhile, and the one that listens for all. */
const URGENT_CONNECTIONS = 4;
/** Time limit in milliseconds: a lease is renewed every 3 s and trusted for 8 s, so a renewal can be repeated. */
const URGENT_LIMIT_MS = 3_000;

/**
 * With 300 sources the configured connections may all be busy, or wait for a lock, for as long as a transaction may take
 * (10 s). A lease that is not renewed for 8 s would be lost by that, and a kill switch that is not seen for 2 s stops all
 * writing.
 *
 * Throws as `openStateDatabase`.
 */
export async function openMemberDatabases(options: {
  readonly config: PostgresState;
  readonly clock: Clock;
  readonly log: Log;
}): Promise<MemberDatabases> {
  const urgent = await openStateDatabase({
    ...options,
    migrate: true,
    connections: URGENT_CONNECTIONS,
    limitMs: URGENT_LIMIT_MS,
  });
  try {
    const database = await openStateDatabase({
      ...options,
      migrate: false,
      // One of them would listen.
      connections: options.config.connections + 1,
    });
    return {
      database: { ...database, onNotified: urgent.onNotified },
      urgent,
      async close() {
        await Promise.all([database.close(), urgent.close()]);
      },
    };
  } catch (error) {
    await urgent.close();
    throw error;
  }
}
