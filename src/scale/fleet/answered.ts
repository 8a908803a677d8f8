import { Retryable } from "../../core/errors/errors.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { within } from "../../core/runtime/waiting.ts";

/**
 * Returns the database's result, or throws `Retryable` after so many milliseconds. The holder of a lease cannot wait for a silent
 * server: a statement that is executed later is seen at the next look.
 */
export async function answered<T>(clock: Clock, ms: number, work: Promise<T>): Promise<T> {
  if (await within(clock, ms, work)) return work;
  throw new Retryable(`The database has not answered within ${ms / 1_000} s.`);
}
