/** Sequence number of an event for one sink: consecutive within an epoch, and each new epoch starts at 1. */
export interface EventNumber {
  readonly epoch: string;
  readonly number: number;
}

/**
 * Attributes of the CloudEvents extension, which requires numbers that sort as text: 4711 becomes `0000000000004711`.
 * Empty for an event without a number.
 */
export function sequenceAttributes(sequence: EventNumber | null | undefined) {
  if (sequence === null || sequence === undefined) return {};
  return { sequence: String(sequence.number).padStart(16, "0"), sequenceepoch: sequence.epoch };
}
