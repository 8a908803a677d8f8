import type { z } from "zod";

type AnySchema = z.core.$ZodType;

interface Definition {
  readonly type: string;
  readonly innerType?: AnySchema;
  readonly in?: AnySchema;
  readonly element?: AnySchema;
  readonly valueType?: AnySchema;
  readonly shape?: Readonly<Record<string, AnySchema>>;
  readonly options?: readonly AnySchema[];
}

function definitionOf(schema: AnySchema): Definition {
  return schema._zod.def as unknown as Definition;
}

/** Keys that a schema knows at a path of the configuration, e.g. `["sinks", "lake", "influxdb"]`. */
export function knownKeys(schema: AnySchema, path: readonly PropertyKey[]): readonly string[] {
  const found = schemaAt(schema, path);
  return found === undefined ? [] : Object.keys(shapeOf(found));
}

export function descriptionOf(schema: AnySchema, path: readonly PropertyKey[]): string | undefined {
  let current = schemaAt(schema, path);
  while (current !== undefined) {
    const { description } = (current as { meta?: () => { description?: string } | undefined }).meta?.() ?? {};
    if (description !== undefined) return description;
    current = wrappedSchema(current);
  }
  return undefined;
}

/** True for options that are written as text, also if they become numbers, e.g. durations. */
export function isTextOption(schema: AnySchema, path: readonly PropertyKey[]): boolean {
  const found = schemaAt(schema, path);
  return found !== undefined && definitionOf(unwrap(found)).type === "string";
}

/** Dotted paths of all options: `*` is a user-defined name, `[]` a list entry, e.g. `commands.allow[].min`. */
export function optionPaths(schema: AnySchema, path = ""): readonly string[] {
  const inner = unwrap(schema);
  const { element, valueType, shape, options = [] } = definitionOf(inner);
  if (element !== undefined) return [...optionPathOf(path), ...optionPaths(element, `${path}[]`).filter(isNew(path))];
  if (valueType !== undefined)
    return [...optionPathOf(path), ...optionPaths(valueType, join(path, "*")).filter(isNew(path))];
  if (shape !== undefined) {
    return [
      ...optionPathOf(path),
      ...Object.entries(shape).flatMap(([key, value]) => optionPaths(value, join(path, key))),
    ];
  }
  return [...new Set([...optionPathOf(path), ...options.flatMap((option) => optionPaths(option, path))])];
}

function optionPathOf(path: string): readonly string[] {
  return path === "" || path.endsWith("*") || path.endsWith("[]") ? [] : [path];
}

function isNew(path: string): (each: string) => boolean {
  return (each) => each !== path;
}

function join(path: string, key: string): string {
  return path === "" ? key : `${path}.${key}`;
}

function schemaAt(schema: AnySchema, path: readonly PropertyKey[]): AnySchema | undefined {
  let current: AnySchema | undefined = schema;
  for (const step of path) {
    if (current === undefined) return undefined;
    current = childSchema(unwrap(current), step);
  }
  return current;
}

function childSchema(schema: AnySchema, step: PropertyKey): AnySchema | undefined {
  const { element, valueType } = definitionOf(schema);
  const shape = shapeOf(schema);
  return element ?? valueType ?? (Object.hasOwn(shape, step) ? shape[String(step)] : undefined);
}

function shapeOf(schema: AnySchema): Readonly<Record<string, AnySchema>> {
  const { shape, options = [] } = definitionOf(unwrap(schema));
  return shape ?? Object.assign({}, ...options.map(shapeOf));
}

/** Removes optional, default and pipe. */
function unwrap(schema: AnySchema): AnySchema {
  let current = schema;
  for (let next = wrappedSchema(current); next !== undefined; next = wrappedSchema(current)) current = next;
  return current;
}

function wrappedSchema(schema: AnySchema): AnySchema | undefined {
  const { innerType, in: input } = definitionOf(schema);
  return innerType ?? input;
}
