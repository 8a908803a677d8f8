import type { Pipeline } from "../app/build-pipeline.ts";
import type { Clock } from "../core/runtime/clock.ts";
import type { Log } from "../core/runtime/log.ts";
import { cutSilence, endSilence, SILENCES } from "../engine/silence/silence.ts";
import type { StateDatabase } from "./postgres/state-database.ts";
import { openShard } from "./postgres/store.ts";

export interface FleetSilences {
  /** Pipelines of the sources held here, by source. */
  readonly pipelines: ReadonlyMap<string, Pick<Pipeline, "store">>;
  readonly database: StateDatabase;
  readonly clock: Clock;
  readonly log: Log;
}

/**
 * Ends a silence in every source that has it: a silence for all sources exists once in each. Sources held here emit the end at once;
 * for the others their holder emits it. False without such a silence.
 */
export async function endSilenceOfFleet(
  { pipelines, database, clock, log }: FleetSilences,
  id: string,
  at: string,
  by: string | null,
): Promise<boolean> {
  const { rows } = await database.query(
    `select source from ${database.table("document")} where set_name = $1 and key = $2`,
    [SILENCES, id],
  );
  let isEnded = false;
  for (const [name] of rows) {
    const source = String(name);
    const held = pipelines.get(source);
    const isHere = held === undefined ? await cutElsewhere(source) : await endSilence(held.store, id, at, by);
    isEnded ||= isHere;
  }
  return isEnded;

  async function cutElsewhere(source: string): Promise<boolean> {
    const store = await openShard(database, { source, as: "operator", clock, log });
    try {
      return await cutSilence(store, id, at, by);
    } finally {
      await store.close();
    }
  }
}
