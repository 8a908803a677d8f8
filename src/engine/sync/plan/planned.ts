/**
 * Tags that the planner chooses from, as columns: index n of each column is the same tag. With 50,000 tags a choice
 * takes 2.5 ms, with objects 5 ms. Times are milliseconds of the same clock as `nowMs`.
 */
export interface PlannedTags {
  readonly count: number;
  readonly ids: readonly string[];
  /** The interval to keep: already stretched and backed off. */
  readonly intervalMs: Float64Array;
  /** When its value was last asked for and answered, or counts as that; `NEVER_MS` when never. */
  readonly lastMs: Float64Array;
  /**
   * For one that was never answered: since when it is to be read. It is due some time after that, so that it gets a value
   * also where the others need every slot for ever.
   */
  readonly sinceMs: Float64Array;
  /** 1 while it is being read, or waits for another try: it is not to be chosen, but it comes round again. */
  readonly underWay: Uint8Array;
  /** By place, in rising order, those that may hold up others and travel apart; empty as a rule. */
  readonly apart: ReadonlyMap<number, Apart>;
}

export interface Apart {
  /** Only tags with the same text share a request. */
  readonly label: string;
  /**
   * `punctual`: read at its usual interval because it delays no other tag. `patient`: read in spare slots. Null: a
   * slow tag.
   */
  readonly turn: "punctual" | "patient" | null;
  /**
   * For those that are `patient`: when one of its site was last asked for, answered or not; `NEVER_MS` when never. The
   * sites take turns by it, because by age one that is always refused would keep the others waiting.
   */
  readonly siteAskedMs: number;
}

/** Stands for the time of what never was; finite, so that the difference of two is a number. */
export const NEVER_MS = -Number.MAX_SAFE_INTEGER;

/** Rules of one plan. */
export interface PlanRules {
  /** Milliseconds from one request to the next that the quota leaves to live reads. */
  readonly slotMs: number;
  /** Tags in one request. */
  readonly size: number;
  /** How long a request takes from this decision until its reply, milliseconds: network, gateway. */
  readonly leadMs: number;
  /** By how much two readings may come further apart than meant, milliseconds: one reply was quick, the next slow. */
  readonly jitterMs?: number;
  /** True for a spare slot: no other lane wants it. */
  readonly eager: boolean;
  /**
   * False after a slot that starving tags took from the ordinary ones: seven that travel each alone would otherwise take
   * seven slots in a row, 42 s where one lasts 6 s, and make everybody late.
   */
  readonly mayDisplace?: boolean;
}

/** The tags of the next request, most urgent first; empty when the slot is free for others. */
export interface Plan {
  readonly group: readonly string[];
  /** It is a search among those that are `patient`, in a slot that no promise needs. */
  readonly isSearch?: true;
  /** It takes a slot that ordinary tags need. */
  readonly displaces?: true;
}
