/**
 * Changes that no test can notice, because the program does the same with them; each with the reason. They are
 * taken out of the sample. The texts are those that a run prints for the survivor.
 */
export interface Equivalent {
  readonly file: string;
  readonly before: string;
  readonly after: string;
  readonly reason: string;
}

export const EQUIVALENTS: readonly Equivalent[] = [];
