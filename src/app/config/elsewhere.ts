import type { z } from "zod";
import { closest, suggestion } from "../../core/values/suggest.ts";
import { knownKeys, optionPaths } from "./schema-walk.ts";

type AnySchema = z.core.$ZodType;

/** Advice for an unknown key, as a sentence with a leading space; may be empty. */
export function helpForKey(schema: AnySchema, path: readonly PropertyKey[], key: string): string {
  const here = knownKeys(schema, path);
  const plain = key.replaceAll("-", "_").toLowerCase();
  if (here.includes(plain)) return ` Did you mean ${plain}?`;
  const near = nearby(schema, path, key, here);
  if (near !== null) return ` It belongs ${near}.`;
  if (closest(key, here) !== undefined) return suggestion(key, here);
  const far = places(schema, key);
  return far === null ? suggestion(key, here) : ` It belongs under ${far}.`;
}

/** One level down, or one or two up. */
function nearby(schema: AnySchema, path: readonly PropertyKey[], key: string, here: readonly string[]): string | null {
  const child = here.find((each) => knownKeys(schema, [...path, each]).includes(key));
  if (child !== undefined) return `under \`${child}\``;
  for (const up of [1, 2]) {
    if (path.length < up) return null;
    if (knownKeys(schema, path.slice(0, -up)).includes(key)) return `beside \`${String(path.at(-up))}\``;
  }
  return null;
}

/** `sources.<name>` and the like, where a key is known in one or two places; null where in none, or in many. */
function places(schema: AnySchema, key: string): string | null {
  const found = allPaths(schema)
    .filter((path) => path.endsWith(`.${key}`) && !path.includes("[]"))
    .map((path) => path.slice(0, -key.length - 1).replaceAll("*", "<name>"));
  const shortest = Math.min(...found.map((path) => path.split(".").length));
  const best = [...new Set(found.filter((path) => path.split(".").length === shortest))];
  return best.length === 0 || best.length > 2 ? null : best.join(" or ");
}

/** Cache of a schema's paths, of which there are hundreds. */
const pathsOf = new WeakMap<AnySchema, readonly string[]>();

function allPaths(schema: AnySchema): readonly string[] {
  const paths = pathsOf.get(schema) ?? optionPaths(schema);
  pathsOf.set(schema, paths);
  return paths;
}

/**
 * Advice when options appear without the user-defined name above them; null otherwise. `known` are an entry's
 * options.
 */
export function nameMissing(section: unknown, known: readonly string[], name: string): string | null {
  if (typeof section !== "object" || section === null || Array.isArray(section)) return null;
  const entry = Object.entries(section).find(([key, value]) => known.includes(key) && !hasKnownKey(value, known));
  if (entry === undefined) return null;
  return `A name of your own is missing above ${entry[0]}: write ${name}: { main: { ${entry[0]}: … } }.`;
}

function hasKnownKey(value: unknown, known: readonly string[]): boolean {
  return typeof value === "object" && value !== null && Object.keys(value).some((key) => known.includes(key));
}
