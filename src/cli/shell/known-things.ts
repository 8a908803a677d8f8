import type { Config } from "../../app/config/config.ts";
import { ConfigError } from "../../core/errors/errors.ts";
import { documentSet, type Store } from "../../engine/store/store.ts";
import type { StoredAlarm } from "../../engine/sync/snapshot.ts";

/** A slip of the pen in an id or a name is said by that name; shown as an empty answer it would read as "none". */

const LISTED_BY = {
  site: "`plenum sites` lists the sites.",
  tag: "`plenum tags` lists the tags.",
  alarm: "`plenum alarms` lists the alarms.",
} as const;

/** Those of the interface (interface, Alarms). */
export const PRIORITIES: readonly string[] = ["A", "B", "C"];

/** Throws ConfigError with those of the ids that the state of none of the sources has. */
export async function refuseUnknown(
  store: Store,
  sources: readonly string[],
  what: keyof typeof LISTED_BY,
  ids: Iterable<string>,
): Promise<void> {
  const unknown: string[] = [];
  for (const id of ids) {
    const held = await Promise.all(sources.map((source) => store.document(documentSet(what, source), id)));
    if (held.every((each) => each === undefined)) unknown.push(id);
  }
  if (unknown.length === 0) return;
  const named = unknown.length === 1 ? what : `${what}s`;
  const [only] = sources;
  const where = sources.length === 1 && only !== undefined ? ` of ${only}` : "";
  throw new ConfigError(`The state knows no ${named} ${unknown.join(", ")}${where}.`, {
    hint: LISTED_BY[what],
  });
}

export function refuseUnknownSources({ sources }: Pick<Config, "sources">, names: readonly string[]): void {
  for (const name of names) {
    if (sources[name] !== undefined) continue;
    throw new ConfigError(`There is no source ${name}; known are: ${Object.keys(sources).join(", ")}.`);
  }
}

/** Beside those of the interface, an alarm of the state may have one of its own. */
export async function refuseUnknownPriorities(
  store: Store,
  sources: readonly string[],
  wanted: readonly string[],
): Promise<void> {
  const known = new Set<string>(PRIORITIES);
  if (wanted.every((each) => known.has(each))) return;
  for (const source of sources)
    for (const { alarm } of (await store.documents<StoredAlarm>(documentSet("alarm", source))).values())
      known.add(alarm.trigger.priority);
  const unknown = wanted.find((each) => !known.has(each));
  if (unknown !== undefined)
    throw new ConfigError(
      `No alarm has a priority ${unknown}; known are ${[...known].toSorted().join(", ")}.`,
    );
}
