import { configJsonSchema } from "../../app/config/config.ts";
import { parseSecretReference } from "../../app/config/contradictory-options.ts";
import { maskCredentials } from "../../core/runtime/log.ts";
import type { ProcessEnv, SecretRef } from "../../core/runtime/secret.ts";
import { SECRET_MASK } from "../../core/values/secret-masking.ts";

// Masks a configuration that strangers will read. Shows only values that the schema expects at their path. Masks texts
// where a secret reference belongs, all values below unknown keys, and parts of addresses that may be access keys.

export const MASKED_TEXT = SECRET_MASK;

interface JsonSchema {
  readonly $ref?: string;
  readonly type?: string | readonly string[];
  readonly enum?: readonly unknown[];
  readonly const?: unknown;
  readonly properties?: Readonly<Record<string, JsonSchema>>;
  readonly additionalProperties?: JsonSchema | boolean;
  readonly items?: JsonSchema | readonly JsonSchema[];
  readonly anyOf?: readonly JsonSchema[];
  readonly oneOf?: readonly JsonSchema[];
  readonly allOf?: readonly JsonSchema[];
}

const SECRET_NAME_PATTERN = /pass|secret|token|credential|authori[sz]ation|signature|cookie|api_?key|^key$|^headers$/i;
/** Matches the name of an environment variable. Another text may be a secret that was typed instead of a name. */
const VARIABLE_PATTERN = /^[A-Z][A-Z_]{0,63}$/;
/** Matches `${NAME}`, but no placeholder with a default value, because that may be a secret. */
const PLACEHOLDER_PATTERN = /^\$\{[A-Za-z_][A-Za-z0-9_]*\}$/;
/** Keys that are longer than any option name may be secrets. */
const MAX_OPTION_NAME_LENGTH = 40;

export function maskConfig(content: unknown, environment: ProcessEnv = process.env) {
  /** Texts that were masked, so that other parts of the report mask them too. */
  const maskedTexts: string[] = [];
  const rootSchema = configJsonSchema() as JsonSchema & { readonly definitions?: Readonly<Record<string, JsonSchema>> };

  function expandSchema(schema: JsonSchema | undefined): readonly JsonSchema[] {
    if (schema === undefined) return [];
    const { $ref, anyOf = [], oneOf = [], allOf = [] } = schema;
    const referredSchema = $ref?.startsWith("#/definitions/") ? rootSchema.definitions?.[$ref.slice(14)] : undefined;
    return [schema, ...[...anyOf, ...oneOf, ...allOf].flatMap(expandSchema), ...expandSchema(referredSchema)];
  }

  const schemasOfKey = (parentSchemas: readonly JsonSchema[], key: string) =>
    parentSchemas.flatMap(({ properties, additionalProperties }) => {
      const propertySchema = properties !== undefined && Object.hasOwn(properties, key) ? properties[key] : undefined;
      const additionalPropertySchema = typeof additionalProperties === "object" ? additionalProperties : undefined;
      return expandSchema(propertySchema ?? additionalPropertySchema);
    });

  function maskUnexpectedValue(value: unknown, allowedSchemas: readonly JsonSchema[], isSecret: boolean): unknown {
    if (value === null) return null;
    if (allowedSchemas.length === 0) return maskValue(value);
    if (Array.isArray(value)) {
      const rawItemSchemas = allowedSchemas.flatMap(({ items }) => (Array.isArray(items) ? items : [items ?? {}]));
      const itemSchemas = rawItemSchemas.flatMap((itemSchema: JsonSchema) => expandSchema(itemSchema));
      return value.map((item) => maskUnexpectedValue(item, itemSchemas, isSecret));
    }
    if (typeof value === "object") {
      const secretReference = parseSecretReference(value);
      if (secretReference !== null) return maskSecretReference(secretReference);
      return Object.fromEntries(
        Object.entries(value).map(([key, propertyValue]) => [
          key.length > MAX_OPTION_NAME_LENGTH ? maskValue(key) : key,
          maskUnexpectedValue(
            propertyValue,
            schemasOfKey(allowedSchemas, key),
            isSecret || SECRET_NAME_PATTERN.test(key),
          ),
        ]),
      );
    }
    if (typeof value === "string" && PLACEHOLDER_PATTERN.test(value)) return value;
    if (isSecret || !allowedSchemas.some((schema) => schemaAcceptsValue(schema, value))) return maskValue(value);
    return typeof value === "string" ? maskText(value) : value;
  }

  function maskSecretReference(reference: SecretRef): SecretRef {
    if ("file" in reference) return { file: maskText(reference.file) };
    const variable = reference.env;
    return {
      env: VARIABLE_PATTERN.test(variable) || environment[variable] !== undefined ? variable : maskValue(variable),
    };
  }

  function maskValue(value: unknown): typeof MASKED_TEXT {
    if (typeof value === "string") maskedTexts.push(value);
    else if (typeof value === "object" && value !== null) Object.values(value).forEach(maskValue);
    return MASKED_TEXT;
  }

  return { content: maskUnexpectedValue(content, expandSchema(rootSchema), false), maskedTexts };
}

function schemaAcceptsValue(schema: JsonSchema, value: unknown): boolean {
  if (schema.const !== undefined) return schema.const === value;
  if (schema.enum !== undefined) return schema.enum.includes(value);
  const allowedJsonTypes = [schema.type ?? []].flat();
  if (typeof value === "number") return allowedJsonTypes.includes("number") || allowedJsonTypes.includes("integer");
  return allowedJsonTypes.includes(typeof value);
}

const URL_PATTERN = /\b[a-z][a-z0-9+.-]*:\/\/[^\s"'<>]*[^\s"'<>.,;:)]/gi;
/** Matches a part of a URL path that is no secret, such as `api`, `v1` or `hooks`. */
const HARMLESS_PATH_SEGMENT_PATTERN = /^([a-z][a-z_-]{0,15}|v\d{1,2})?$/;
/** Patterns of secret keys: known prefixes, JWTs, PEM blocks, long hexadecimal numbers. */
const ACCESS_KEY_PATTERNS = [
  /\b\d{1,10}\|[A-Za-z0-9+/=_-]{16,}/g,
  /\b(whsec|xox[a-z]|ghp|gho|glpat|sk|pk|rk|AKIA|ASIA)[_-]?[A-Za-z0-9+/=_-]{12,}/g,
  /\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)?/g,
  /-----BEGIN [^-]+-----[\s\S]*?(-----END [^-]+-----|$)/g,
  /\b[0-9a-fA-F]{32,}\b/g,
] as const;
const LONG_TOKEN_PATTERN = /[A-Za-z0-9+/_-]{20,}={0,2}/g;
const FILE_NAME_TIME_PATTERN = /\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-\d{3}Z/g;
const RANDOM_TOKEN_PATTERNS = [/\d/, /[a-z]/, /[A-Z]/];
const NAMED_SECRET_PATTERN =
  /\b((?:[a-z_-]*(?:passw(?:or)?d|secret|token|api[_-]?key|credential)s?)["']?\s*[=:]\s*["']?)(?!\[|\{|null\b|true\b|false\b)[^\s"',;}&]+/gi;

/** Masks secrets in a text. Masks user, query and path segments of URLs that may be keys. */
export function maskText(text: string): string {
  const partlyMaskedText = maskCredentials(text)
    .replace(URL_PATTERN, maskUrl)
    .replace(NAMED_SECRET_PATTERN, `$1${MASKED_TEXT}`);
  return ACCESS_KEY_PATTERNS.reduce(
    (maskedText, pattern) => maskedText.replace(pattern, MASKED_TEXT),
    partlyMaskedText,
  ).replace(LONG_TOKEN_PATTERN, (longText) => (looksLikeRandomToken(longText) ? MASKED_TEXT : longText));
}

function looksLikeRandomToken(longText: string): boolean {
  if (longText.startsWith("/"))
    return longText
      .slice(1)
      .split("/")
      .some((segment) => segment.length >= 20 && looksLikeRandomToken(segment));
  const textWithoutFileTimes = longText.replace(FILE_NAME_TIME_PATTERN, "");
  return RANDOM_TOKEN_PATTERNS.every((characterPattern) => characterPattern.test(textWithoutFileTimes));
}

function maskUrl(text: string): string {
  if (!URL.canParse(text)) return MASKED_TEXT;
  const { protocol, host, pathname, search } = new URL(text);
  if (pathname === "/" && search === "") return `${protocol}//${host}${text.endsWith("/") ? "/" : ""}`;
  const maskedPath = pathname
    .split("/")
    .map((segment) => (HARMLESS_PATH_SEGMENT_PATTERN.test(segment) ? segment : MASKED_TEXT));
  return `${protocol}//${host}${maskedPath.join("/")}${search === "" ? "" : `?${MASKED_TEXT}`}`;
}
