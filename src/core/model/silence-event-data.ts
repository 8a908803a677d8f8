export interface SilenceFact {
  /** The silence that began or ended. */
  readonly silence: AgreedSilence;
  /** Person who began or ended the silence; null when the silence ended at the agreed time. */
  readonly by: string | null;
}

/** A period in which people are not notified of alarms that match all fields that are not null. */
export interface AgreedSilence {
  /** Name of the silence, for `plenum silence end`. */
  readonly id: string;
  /** Name of the alarms' source; null for any source. */
  readonly source: string | null;
  /** Id of the alarms' site; null for any site. */
  readonly site: number | null;
  /** Alarm priorities; null for any priority. */
  readonly priorities: readonly string[] | null;
  /** Pattern of the trigger's name: `*` matches any letters; case does not matter. */
  readonly name: string | null;
  /** Id of the alarm; null for any alarm. */
  readonly alarm: string | null;
  /** Start of the silence, UTC. */
  readonly from: string;
  /** End of the silence, UTC. */
  readonly to: string;
  /** Reason for the silence, in the words of the person who began the silence. */
  readonly reason: string;
  /** Person who began the silence. */
  readonly madeBy: string;
}
