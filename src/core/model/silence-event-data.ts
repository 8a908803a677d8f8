export interface SilenceFact {
  /** Agreed silence. */
  readonly silence: AgreedSilence;
  /** Person who began or ended the silence; null when its time was over. */
  readonly by: string | null;
}

/** An agreed time in which alarms that fit in every part that is not null are not told to people. */
export interface AgreedSilence {
  /** Name of the silence, for `plenum silence end`. */
  readonly id: string;
  /** Name of a source; null for any. */
  readonly source: string | null;
  /** A site's id; null for any. */
  readonly site: number | null;
  /** Alarm priorities; null for any. */
  readonly priorities: readonly string[] | null;
  /** Pattern of the trigger's name: `*` matches any letters; case does not matter. */
  readonly name: string | null;
  /** An alarm's id; null for any. */
  readonly alarm: string | null;
  /** Start of the silence, UTC. */
  readonly from: string;
  /** End of the silence, UTC. */
  readonly to: string;
  /** Why, in the words of who made it. */
  readonly reason: string;
  /** Manufacturer. */
  readonly madeBy: string;
}
