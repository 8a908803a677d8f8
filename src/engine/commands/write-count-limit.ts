import type { Clock } from "../../core/runtime/clock.ts";
import { tagKey } from "./command.ts";

/** How often tags were written: what wears out a controller's memory, and what a loop would do without end. */
export interface WriteCountLimit {
  /** Wall times, milliseconds since 1970, of this tag's writes within the last 24 hours, ascending. */
  ofTag(source: string, tagId: string): readonly number[];
  /** Writes of all tags of a source within the last hour. */
  lastHour(source: string): number;
  /** Documents to store when these tags are written now; call `remember` after the commit. */
  writing(tags: readonly Tag[]): readonly WriteCountChange[];
  remember(changes: readonly WriteCountChange[]): void;
}

interface Tag {
  readonly source: string;
  readonly tagId: string;
}

/** As stored, by `tagKey`. */
export interface WriteCount {
  readonly sentAtMs: readonly number[];
}
export type WriteCountChange = readonly [key: string, wear: WriteCount, source: string];

/** The documents, one by tag. */
export const WRITE_COUNT = "command-wear";

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

export function createWriteCountLimit(stored: ReadonlyMap<string, WriteCount>, clock: Clock): WriteCountLimit {
  const byTag = new Map(stored);
  const bySource = new Map<string, readonly number[]>();
  for (const [key, { sentAtMs }] of stored) {
    // The name of a source has no slash in it.
    const source = key.slice(0, key.indexOf("/"));
    bySource.set(
      source,
      [...(bySource.get(source) ?? []), ...sentAtMs].toSorted((a, b) => a - b),
    );
  }

  const lately = (times: readonly number[], periodMs: number): readonly number[] => {
    const since = clock.now() - periodMs;
    return times.filter((at) => at > since);
  };
  const ofKey = (key: string) => lately(byTag.get(key)?.sentAtMs ?? [], DAY_MS);

  return {
    ofTag: (source, tagId) => ofKey(tagKey({ source, tagId })),
    lastHour: (source) => lately(bySource.get(source) ?? [], HOUR_MS).length,
    writing: (tags) =>
      tags.map((tag) => {
        const key = tagKey(tag);
        return [key, { sentAtMs: [...ofKey(key), clock.now()] }, tag.source];
      }),
    remember(changes) {
      for (const [key, wear, source] of changes) {
        byTag.set(key, wear);
        const latest = wear.sentAtMs.at(-1) ?? clock.now();
        bySource.set(source, [...lately(bySource.get(source) ?? [], HOUR_MS), latest]);
      }
    },
  };
}
