import type { z } from "zod";

/** The closest of some words to a mistyped one, when it is close enough to be meant. */
export function closest(word: string, words: readonly string[]): string | undefined {
  let best: string | undefined;
  let bestDistance = Math.max(2, Math.floor(word.length / 3)) + 1;
  for (const candidate of words) {
    const distance = editDistance(word.toLowerCase(), candidate.toLowerCase());
    if (distance < bestDistance) {
      best = candidate;
      bestDistance = distance;
    }
  }
  return best;
}

/** Levenshtein distance, one row at a time. */
function editDistance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, column) => column);
  for (let i = 1; i <= a.length; i += 1) {
    const next = [i];
    for (let j = 1; j <= b.length; j += 1) {
      const substitute = (row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(substitute, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1));
    }
    row = next;
  }
  return row[b.length] ?? 0;
}

type AnySchema = z.core.$ZodType;

/** The keys that a schema knows at a path of the configuration, e.g. `["sinks", "lake", "influxdb"]`. */
export function knownKeys(schema: AnySchema, path: readonly PropertyKey[]): readonly string[] {
  let current: AnySchema | undefined = unwrap(schema);
  for (const step of path) {
    if (current === undefined) return [];
    current = unwrap(child(current, step));
  }
  return current === undefined ? [] : Object.keys(shapeOf(current));
}

function child(schema: AnySchema, step: PropertyKey): AnySchema | undefined {
  const { def } = schema._zod as { def: { type: string; element?: AnySchema; valueType?: AnySchema } };
  if (def.type === "array") return def.element;
  if (def.type === "record") return def.valueType;
  return shapeOf(schema)[String(step)];
}

function shapeOf(schema: AnySchema): Readonly<Record<string, AnySchema>> {
  const { def } = schema._zod as { def: { shape?: Record<string, AnySchema>; options?: AnySchema[] } };
  if (def.shape !== undefined) return def.shape;
  const merged: Record<string, AnySchema> = {};
  for (const option of def.options ?? []) Object.assign(merged, shapeOf(unwrap(option) ?? option));
  return merged;
}

/** Takes optional, default, pipe and the like off, down to what has keys. */
function unwrap(schema: AnySchema | undefined): AnySchema | undefined {
  let current = schema;
  while (current !== undefined) {
    const { def } = current._zod as { def: { innerType?: AnySchema; in?: AnySchema } };
    const inner: AnySchema | undefined = def.innerType ?? def.in;
    if (inner === undefined) return current;
    current = inner;
  }
  return undefined;
}
