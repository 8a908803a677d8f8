import { createHash } from "node:crypto";

/** Options that must be equal in all members, because they decide how a source is handled. */
export interface Shared {
  readonly sources: unknown;
  readonly sinks: unknown;
  readonly commands: unknown;
  readonly state: {
    readonly max_bytes: number;
    readonly max_age: number;
    readonly replay_window: number;
    readonly plots: boolean;
  };
}

/**
 * Tells configurations apart: 16 hexadecimal digits, the same for the same meaning in whatever order it was written. What
 * belongs to one machine (log, status page, folder, the way to the database) does not count, and no secret goes into it.
 */
export function digestOf({ sources, sinks, commands, state }: Shared): string {
  const { max_bytes, max_age, replay_window, plots } = state;
  const all = { sources, sinks, commands, state: { max_bytes, max_age, replay_window, plots } };
  return createHash("sha256").update(JSON.stringify(all, inOrder)).digest("hex").slice(0, 16);
}

/** The keys of each object by the alphabet; how numbers differ that JSON does not have is kept. */
function inOrder(_key: string, value: unknown): unknown {
  if (typeof value === "number" && !Number.isFinite(value)) return String(value);
  if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
  return Object.fromEntries(Object.entries(value).toSorted(([a], [b]) => (a < b ? -1 : 1)));
}
