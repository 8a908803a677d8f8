import { Retryable } from "../../core/errors/errors.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { within } from "../../core/runtime/waiting.ts";

/**
 * What the database answers, or a Retryable after so many milliseconds. Whoever keeps a lease cannot wait for a server
 * that says nothing: what was asked may still be done there, and is found at the next look.
 */
export async function answered<T>(clock: Clock, ms: number, work: Promise<T>): Promise<T> {
  if (await within(clock, ms, work)) return work;
  throw new Retryable(`The database has not answered within ${ms / 1_000} s.`);
}
