import type { AnyEvent, Event } from "../../src/core/model/event.ts";

/** A UTC day of a site of which the worker's ledger says that all is known. */
export interface Seal {
  readonly site: string | null;
  /** Such as `2026-11-21`. */
  readonly day: string;
  /** 1, and one more each time when something of the day has changed afterwards. */
  readonly revision: number;
  /** What the ledger says of the day, as the event has it. */
  readonly account: unknown;
}

/** The seal that an event tells; null for any other event. */
export function sealIn(event: Event): Seal | null {
  const told = event as AnyEvent;
  if (told.type !== "day-sealed") return null;
  const { date, revision } = told.data;
  return { site: told.siteid ?? null, day: date, revision, account: told.data };
}
