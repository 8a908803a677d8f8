import type { Config } from "../../app/config/config.ts";
import { ConfigError } from "../../core/errors/errors.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import { createLog } from "../../core/runtime/log.ts";
import { openStateDatabase } from "../../scale/postgres/open.ts";
import type { StateDatabase } from "../../scale/postgres/state-database.ts";

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
