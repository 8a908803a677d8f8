/**
 * Work that goes on as long as the worker runs, as its wishes say and not at certain times: the live reads, history.
 */
export interface Follower {
  /** Also the key of its state in the documents `poll/<source>`, and the label of its metrics. */
  readonly name: string;
  /** The ability of the token that it needs (interface, Authentication 3), for a clear sentence after a 403. */
  readonly ability?: string;
  /**
   * Works until `draining` aborts. Rejects with what concerns all of its work (src/core/errors/errors.ts); it is begun anew after a
   * rest that the error decides, and must have lost nothing by it.
   */
  follow(stint: RunContext): Promise<void>;
}

export interface RunContext {
  /** Nothing new begins; what is on its way comes to its end. */
  readonly draining: AbortSignal;
  /** Ends what is on its way. */
  readonly forced: AbortSignal;
  /** The service as a whole was away since the stint before, so what failed then blames nobody. */
  readonly afterOutage?: boolean;
  /** Called for every good answer. */
  readonly well: () => void;
}
