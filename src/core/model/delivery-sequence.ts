/** Consecutive number of an event that was offered to one sink. Each new epoch starts at 1 again. */
export interface EventNumber {
  readonly epoch: string;
  readonly number: number;
}

/** CloudEvents extension attributes with the number of an event; empty for an event without a number. */
export interface SequenceAttributes {
  readonly sequence?: string;
  readonly sequenceepoch?: string;
}

/** CloudEvents requires numbers that sort as text: 4711 becomes `0000000000004711`. */
export function sequenceAttributes(sequence: EventNumber | null | undefined): SequenceAttributes {
  if (sequence === null || sequence === undefined) return {};
  return { sequence: String(sequence.number).padStart(16, "0"), sequenceepoch: sequence.epoch };
}
