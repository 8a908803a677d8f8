/**
 * The far end of a receiver, in process, with the rules of the real one: what it asks for, what it answers, what it
 * does with a key that it knows, how its search lags. Each receiver has one, for its own tests and for the battery of
 * crashes that all of them pass.
 */
export interface ReceiverFarEnd {
  /** The connector's block of a configuration that leads here. */
  readonly config: Readonly<Record<string, unknown>>;
  /** What people see there, in the order in which it was made. */
  things(): readonly Thing[];
  /** The next so many requests that change something are carried out, and their answers are lost: the connection ends. */
  loseAnswers(count: number): void;
  /** The next so many requests are answered with 429 (or what the receiver says instead), and not carried out. */
  tellToWait(count: number): void;
  /** How many requests came, for limits and for waste. */
  requests(): number;
  stop(): Promise<void>;
}

export interface Thing {
  /** The incident's key, as the far end got it in whatever form; null where it has no place for one. */
  readonly key: string | null;
  readonly isOpen: boolean;
  /** All that was ever said in it: the title, edits, replies; one text each. */
  readonly texts: readonly string[];
  /** How many messages it is, where nothing that was sent is ever edited. */
  readonly messages?: number;
}
