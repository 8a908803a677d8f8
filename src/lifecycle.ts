/**
 * What the worker starts and stops: scheduler, dispatcher, status server, command intake.
 *
 * `start` returns once the service works in the background; `signal` aborts what it has under way.
 * `stop` lets what is under way finish until `deadlineMs` (milliseconds from now) and then gives up on it.
 * A stop before a start, and a second stop, are fine.
 */
export interface Service {
  readonly name: string;
  start(signal: AbortSignal): Promise<void>;
  stop(deadlineMs: number): Promise<void>;
}

/** The reason of an abort that means "we are stopping", so that nobody reports it as a fault. */
export class Stopping extends Error {
  constructor() {
    super("stopping");
    this.name = "Stopping";
  }
}

export function isStopping(error: unknown): boolean {
  return error instanceof Stopping;
}
