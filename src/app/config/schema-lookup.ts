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
  const foundSchema = findSchemaAt(schema, path);
  return foundSchema === undefined ? [] : Object.keys(schemaShape(foundSchema));
}

export function findDescription(schema: AnySchema, path: readonly PropertyKey[]): string | undefined {
  let currentSchema = findSchemaAt(schema, path);
  while (currentSchema !== undefined) {
    const { description } = (currentSchema as { meta?: () => { description?: string } | undefined }).meta?.() ?? {};
    if (description !== undefined) return description;
    currentSchema = wrappedSchema(currentSchema);
  }
  return undefined;
}

/** True for options that are written as text, including texts that become numbers, e.g. durations. */
export function isTextOption(schema: AnySchema, path: readonly PropertyKey[]): boolean {
  const foundSchema = findSchemaAt(schema, path);
  return foundSchema !== undefined && zodDefinition(unwrapSchema(foundSchema)).type === "string";
}

/** Lists the dotted paths of all options: `*` is a user-defined name, `[]` a list entry, e.g. `commands.allow[].min`. */
export function optionPaths(schema: AnySchema, path = ""): readonly string[] {
  const { element, valueType, shape, options = [] } = zodDefinition(unwrapSchema(schema));
  const ownPath = path === "" || path.endsWith("*") || path.endsWith("[]") ? [] : [path];
  if (element !== undefined) return [...ownPath, ...optionPaths(element, `${path}[]`)];
  const fields = Object.entries(valueType === undefined ? (shape ?? {}) : { "*": valueType });
  const fieldPaths = fields.flatMap(([key, field]) => optionPaths(field, path === "" ? key : `${path}.${key}`));
  return [...new Set([...ownPath, ...fieldPaths, ...options.flatMap((option) => optionPaths(option, path))])];
}

function findSchemaAt(schema: AnySchema, path: readonly PropertyKey[]): AnySchema | undefined {
  let currentSchema: AnySchema | undefined = schema;
  for (const pathStep of path) {
    if (currentSchema === undefined) return undefined;
    currentSchema = childSchema(unwrapSchema(currentSchema), pathStep);
  }
  return currentSchema;
}

function childSchema(schema: AnySchema, step: PropertyKey): AnySchema | undefined {
  const { element, valueType } = zodDefinition(schema);
  const shapeByKey = schemaShape(schema);
  return element ?? valueType ?? (Object.hasOwn(shapeByKey, step) ? shapeByKey[String(step)] : undefined);
}

function schemaShape(schema: AnySchema): Readonly<Record<string, AnySchema>> {
  const { shape, options = [] } = zodDefinition(unwrapSchema(schema));
  return shape ?? Object.assign({}, ...options.map(schemaShape));
}

/** Returns the schema inside the zod wrappers optional, default and pipe. */
function unwrapSchema(schema: AnySchema): AnySchema {
  const innerSchema = wrappedSchema(schema);
  return innerSchema === undefined ? schema : unwrapSchema(innerSchema);
}

function wrappedSchema(schema: AnySchema): AnySchema | undefined {
  const { innerType, in: input } = zodDefinition(schema);
  return innerType ?? input;
}
