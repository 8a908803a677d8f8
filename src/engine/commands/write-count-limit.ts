import type { Clock } from "../../core/runtime/clock.ts";
import { tagKey } from "./command.ts";

export interface WriteTimes {
  readonly sentAtMs: readonly number[];
}

export const WRITE_COUNT_SET = "command-wear";

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

/** Counts writes per tag and source, because frequent writes wear out the memory of a controller. */
export function createWriteCountLimit(timesByTag: Map<string, WriteTimes>, clock: Clock) {
  function writeTimesWithin(timesMs: readonly number[] = [], periodMs: number): readonly number[] {
    return timesMs.filter((timeMs) => timeMs > clock.now() - periodMs);
  }
  const recentWriteTimesMs = (key: string) => writeTimesWithin(timesByTag.get(key)?.sentAtMs, DAY_MS);

  return {
    writeTimesOfTagMs: (source: string, tagId: string) => recentWriteTimesMs(tagKey({ source, tagId })),
    countLastHour(source: string): number {
      const writeTimesOfSource = [...timesByTag].filter(([key]) => key.startsWith(`${source}/`));
      return writeTimesOfSource.reduce((sum, [, { sentAtMs }]) => sum + writeTimesWithin(sentAtMs, HOUR_MS).length, 0);
    },
    /** Returns the documents to store when these tags are written; call `applyCommittedWrites` after the commit. */
    documentsForWrites: (tags: readonly { readonly source: string; readonly tagId: string }[]) =>
      tags
        .map(tagKey)
        .map((key): readonly [string, WriteTimes] => [key, { sentAtMs: [...recentWriteTimesMs(key), clock.now()] }]),
    applyCommittedWrites(newTimesByTag: readonly (readonly [string, WriteTimes])[]): void {
      for (const [key, writeTimes] of newTimesByTag) timesByTag.set(key, writeTimes);
    },
  };
}
