import type { z } from "zod";

type AnyZodSchema = z.core.$ZodType;

interface ZodSchemaDefinition {
  readonly type: string;
  readonly innerType?: AnyZodSchema;
  readonly in?: AnyZodSchema;
  readonly element?: AnyZodSchema;
  readonly valueType?: AnyZodSchema;
  readonly shape?: Readonly<Record<string, AnyZodSchema>>;
  readonly options?: readonly AnyZodSchema[];
}

function zodSchemaDefinition(schema: AnyZodSchema): ZodSchemaDefinition {
  return schema._zod.def as unknown as ZodSchemaDefinition;
}

/** Lists the keys that a schema allows at a path of the configuration, e.g. `["sinks", "lake", "influxdb"]`. */
export function allowedKeys(schema: AnyZodSchema, path: readonly PropertyKey[]): readonly string[] {
  const optionSchema = findSchemaAtPath(schema, path);
  return optionSchema === undefined ? [] : Object.keys(listSchemasByKey(optionSchema));
}

export function findOptionDescription(schema: AnyZodSchema, path: readonly PropertyKey[]): string | undefined {
  let currentSchema = findSchemaAtPath(schema, path);
  while (currentSchema !== undefined) {
    const { description } = (currentSchema as { meta?: () => { description?: string } | undefined }).meta?.() ?? {};
    if (description !== undefined) return description;
    currentSchema = findInnerZodSchema(currentSchema);
  }
  return undefined;
}

/** True for options that are written as text, including durations such as `5m`. */
export function isTextOption(schema: AnyZodSchema, path: readonly PropertyKey[]): boolean {
  const optionSchema = findSchemaAtPath(schema, path);
  return optionSchema !== undefined && zodSchemaDefinition(unwrapZodSchema(optionSchema)).type === "string";
}

/** Lists the paths of all options: `*` is a user-defined name, `[]` a list entry, e.g. `commands.allow[].min`. */
export function listOptionPaths(schema: AnyZodSchema, path = ""): readonly string[] {
  const { element, valueType, shape, options = [] } = zodSchemaDefinition(unwrapZodSchema(schema));
  const ownOptionPath = path === "" || path.endsWith("*") || path.endsWith("[]") ? [] : [path];
  if (element !== undefined) return [...ownOptionPath, ...listOptionPaths(element, `${path}[]`)];
  const fields = Object.entries(valueType === undefined ? (shape ?? {}) : { "*": valueType });
  const fieldPaths = fields.flatMap(([key, field]) => listOptionPaths(field, path === "" ? key : `${path}.${key}`));
  return [...new Set([...ownOptionPath, ...fieldPaths, ...options.flatMap((option) => listOptionPaths(option, path))])];
}

function findSchemaAtPath(schema: AnyZodSchema, path: readonly PropertyKey[]): AnyZodSchema | undefined {
  let currentSchema: AnyZodSchema | undefined = schema;
  for (const optionPathStep of path) {
    if (currentSchema === undefined) return undefined;
    currentSchema = findChildSchema(unwrapZodSchema(currentSchema), optionPathStep);
  }
  return currentSchema;
}

function findChildSchema(schema: AnyZodSchema, pathStep: PropertyKey): AnyZodSchema | undefined {
  const { element, valueType } = zodSchemaDefinition(schema);
  const schemaByKey = listSchemasByKey(schema);
  return element ?? valueType ?? (Object.hasOwn(schemaByKey, pathStep) ? schemaByKey[String(pathStep)] : undefined);
}

function listSchemasByKey(schema: AnyZodSchema): Readonly<Record<string, AnyZodSchema>> {
  const { shape, options = [] } = zodSchemaDefinition(unwrapZodSchema(schema));
  return shape ?? Object.assign({}, ...options.map(listSchemasByKey));
}

function unwrapZodSchema(schema: AnyZodSchema): AnyZodSchema {
  const innerSchema = findInnerZodSchema(schema);
  return innerSchema === undefined ? schema : unwrapZodSchema(innerSchema);
}

function findInnerZodSchema(schema: AnyZodSchema): AnyZodSchema | undefined {
  const { innerType, in: inputSchema } = zodSchemaDefinition(schema);
  return innerType ?? inputSchema;
}
