/** The place of an event in the count of what one sink was offered: within an epoch 1, 2, 3 … without a hole. */
export interface EventNumber {
  readonly epoch: string;
  readonly number: number;
}

/** The same as extension attributes of CloudEvents; empty for what is not counted. */
export interface SequenceAttributes {
  readonly sequence?: string;
  readonly sequenceepoch?: string;
}

/** 16 digits sort as text, as CloudEvents requires: 4711 is `0000000000004711`. */
export function sequenceAttributes(sequence: EventNumber | null | undefined): SequenceAttributes {
  if (sequence === null || sequence === undefined) return {};
  return { sequence: String(sequence.number).padStart(16, "0"), sequenceepoch: sequence.epoch };
}
