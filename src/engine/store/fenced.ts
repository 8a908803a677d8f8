/**
 * Somebody else holds the source by now, with a later epoch: nothing was committed, and nothing will be. Whoever gets
 * it stops working for that source, without a try to save anything.
 */
export class Fenced extends Error {
  readonly source: string;
  constructor(source: string, options: { readonly cause?: unknown } = {}) {
    super(
      `Another member of the fleet holds the source ${source} by now; nothing was committed here.`,
      options.cause === undefined ? undefined : { cause: options.cause },
    );
    this.name = "Fenced";
    this.source = source;
  }
}
