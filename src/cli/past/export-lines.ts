import type { HistoryGap } from "../../engine/sync/history/progress.ts";
import { grouped, reasonOf } from "./gaps.ts";

/** What came of an export. */
export interface ExportOutcome {
  /** Nothing that was asked for is missing; what has no log is not. */
  readonly complete: boolean;
  readonly from: string;
  readonly to: string;
  readonly tags: number;
  /** Buckets with a value, and without one. */
  readonly had: number;
  readonly null: number;
  /** Days of sites that are sealed: compacted, and with a manifest. */
  readonly sealedDays: number;
  /** What has no log by the service's word, or was refused. */
  readonly holes: readonly HistoryGap[];
  /** Lists that were not to be had, and events that could not be written; a sentence each. */
  readonly troubles: readonly string[];
}

export function exportLines(folder: string, outcome: ExportOutcome): readonly string[] {
  const { complete, from, holes, had, null: nulls, sealedDays, tags, to, troubles } = outcome;
  return [
    `${had} values and ${nulls} intervals without one, of ${tags} tags, from ${from} to ${to}, are in ${folder}; ${sealedDays} days are sealed.`,
    ...grouped(holes, false).map(({ tags: of, example, hole }) => {
      const when = hole.from === null ? "" : ` from ${hole.from} to ${hole.to}`;
      const more = of === 1 ? "" : ` and ${of - 1} more`;
      return `not had${when}: ${example}${more}: ${reasonOf(hole)}`;
    }),
    ...troubles,
    ...(complete
      ? []
      : [
          "It is not complete; the same command asks again for what was refused, at the earliest when it says above.",
        ]),
  ];
}
