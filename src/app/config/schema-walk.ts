import type { z } from "zod";

type AnySchema = z.core.$ZodType;

interface ZodDefinition {
  readonly type: string;
  readonly innerType?: AnySchema;
  readonly in?: AnySchema;
  readonly element?: AnySchema;
  readonly valueType?: AnySchema;
  readonly shape?: Readonly<Record<string, AnySchema>>;
  readonly options?: readonly AnySchema[];
}

function zodDefinition(schema: AnySchema): ZodDefinition {
  return schema._zod.def as unknown as ZodDefinition;
}

/** Lists the keys that a schema allows at a path of the configuration, e.g. `["sinks", "lake", "influxdb"]`. */
export function knownKeys(schema: AnySchema, path: readonly PropertyKey[]): readonly string[] {
  const found = findSchemaAt(schema, path);
  return found === undefined ? [] : Object.keys(schemaShape(found));
}

export function findDescription(schema: AnySchema, path: readonly PropertyKey[]): string | undefined {
  let current = findSchemaAt(schema, path);
  while (current !== undefined) {
    const { description } = (current as { meta?: () => { description?: string } | undefined }).meta?.() ?? {};
    if (description !== undefined) return description;
    current = wrappedSchema(current);
  }
  return undefined;
}

/** True for options that are written as text, including texts that become numbers, e.g. durations. */
export function isTextOption(schema: AnySchema, path: readonly PropertyKey[]): boolean {
  const found = findSchemaAt(schema, path);
  return found !== undefined && zodDefinition(unwrapSchema(found)).type === "string";
}

/** Lists the dotted paths of all options: `*` is a user-defined name, `[]` a list entry, e.g. `commands.allow[].min`. */
export function optionPaths(schema: AnySchema, path = ""): readonly string[] {
  const inner = unwrapSchema(schema);
  const { element, valueType, shape, options = [] } = zodDefinition(inner);
  if (element !== undefined) return [...asOptionPath(path), ...optionPaths(element, `${path}[]`).filter(isNot(path))];
  if (valueType !== undefined)
    return [...asOptionPath(path), ...optionPaths(valueType, joinPath(path, "*")).filter(isNot(path))];
  if (shape !== undefined) {
    return [
      ...asOptionPath(path),
      ...Object.entries(shape).flatMap(([key, value]) => optionPaths(value, joinPath(path, key))),
    ];
  }
  return [...new Set([...asOptionPath(path), ...options.flatMap((option) => optionPaths(option, path))])];
}

function asOptionPath(path: string): readonly string[] {
  return path === "" || path.endsWith("*") || path.endsWith("[]") ? [] : [path];
}

function isNot(path: string): (each: string) => boolean {
  return (each) => each !== path;
}

function joinPath(path: string, key: string): string {
  return path === "" ? key : `${path}.${key}`;
}

function findSchemaAt(schema: AnySchema, path: readonly PropertyKey[]): AnySchema | undefined {
  let current: AnySchema | undefined = schema;
  for (const step of path) {
    if (current === undefined) return undefined;
    current = childSchema(unwrapSchema(current), step);
  }
  return current;
}

function childSchema(schema: AnySchema, step: PropertyKey): AnySchema | undefined {
  const { element, valueType } = zodDefinition(schema);
  const shape = schemaShape(schema);
  return element ?? valueType ?? (Object.hasOwn(shape, step) ? shape[String(step)] : undefined);
}

function schemaShape(schema: AnySchema): Readonly<Record<string, AnySchema>> {
  const { shape, options = [] } = zodDefinition(unwrapSchema(schema));
  return shape ?? Object.assign({}, ...options.map(schemaShape));
}

/** Returns the schema inside the zod wrappers optional, default and pipe. */
function unwrapSchema(schema: AnySchema): AnySchema {
  let current = schema;
  for (let next = wrappedSchema(current); next !== undefined; next = wrappedSchema(current)) current = next;
  return current;
}

function wrappedSchema(schema: AnySchema): AnySchema | undefined {
  const { innerType, in: input } = zodDefinition(schema);
  return innerType ?? input;
}
