/** Continuous work that follows target intervals instead of a schedule: live reads and history. */
export interface Follower {
  /** Also the key of its state in the documents `poll/<source>`, and the label of its metrics. */
  readonly name: string;
  /** The ability of the token that it needs (interface, Authentication 3), for a clear sentence after a 403. */
  readonly ability?: string;
  /**
   * Works until `draining` aborts. Rejects with failures that concern all of its work (src/core/errors/errors.ts); it restarts
   * after a pause that the error decides, and must lose nothing by it.
   */
  follow(stint: RunContext): Promise<void>;
}

export interface RunContext {
  /** Nothing new begins; what is on its way comes to its end. */
  readonly draining: AbortSignal;
  /** Ends what is on its way. */
  readonly forced: AbortSignal;
  /** True when the service was unavailable since the previous run, so earlier failures prove nothing. */
  readonly afterOutage?: boolean;
  /** Called for every good answer. */
  readonly well: () => void;
}
