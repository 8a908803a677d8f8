export interface SilenceFact {
  readonly silence: AgreedSilence;
  /** Who began or ended it; null when its time was over. */
  readonly by: string | null;
}

/** An agreed time in which alarms that fit in every part that is not null are not told to people. */
export interface AgreedSilence {
  readonly id: string;
  /** Name of a source, a site's id, alarm priorities, an alarm's id; null for any. */
  readonly source: string | null;
  readonly site: number | null;
  readonly priorities: readonly string[] | null;
  /** Of the alarm's trigger: letters as they are, `*` for any; case does not matter. */
  readonly name: string | null;
  readonly alarm: string | null;
  /** UTC. */
  readonly from: string;
  readonly to: string;
  readonly reason: string;
  readonly madeBy: string;
}
