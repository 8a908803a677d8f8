import { configJsonSchema } from "../../app/config/config.ts";
import { withoutCredentials } from "../../core/runtime/log.ts";
import { MASK } from "../../core/values/masking.ts";

// Masks a configuration for strangers: shows only values that the schema expects at their path. Texts in place of secret
// references, everything below unknown keys, and parts of addresses that may be keys are masked.

export const MASKED = MASK;

interface Schema {
  readonly $ref?: string;
  readonly type?: string | readonly string[];
  readonly enum?: readonly unknown[];
  readonly const?: unknown;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly additionalProperties?: Schema | boolean;
  readonly items?: Schema | readonly Schema[];
  readonly anyOf?: readonly Schema[];
  readonly oneOf?: readonly Schema[];
  readonly allOf?: readonly Schema[];
}

const SECRET_KEY = /pass|secret|token|credential|authori[sz]ation|signature|cookie|api_?key|^key$|^headers$/i;
/** Name of an environment variable, not a secret in its place. */
const VARIABLE = /^[A-Z][A-Z_]{0,63}$/;
/** A bare `${NAME}`; a placeholder with a default may contain a secret. */
const PLACEHOLDER = /^\$\{[A-Za-z_][A-Za-z0-9_]*\}$/;
/** A secret written as a key is longer than any option name. */
const LONGEST_KEY = 40;

export interface MaskedConfig {
  readonly content: unknown;
  /** Masked texts, which other parts of the report mask too. */
  readonly hidden: readonly string[];
}

/** `environment` says which variables are set. */
export function maskConfig(
  content: unknown,
  environment: Readonly<Record<string, string | undefined>> = process.env,
): MaskedConfig {
  const hidden: string[] = [];
  const root = configJsonSchema() as Schema & { readonly definitions?: Readonly<Record<string, Schema>> };

  function alternatives(schema: Schema | undefined): readonly Schema[] {
    if (schema === undefined) return [];
    const { $ref, anyOf = [], oneOf = [], allOf = [] } = schema;
    const referred = $ref?.startsWith("#/definitions/") ? root.definitions?.[$ref.slice(14)] : undefined;
    return [schema, ...[...anyOf, ...oneOf, ...allOf].flatMap(alternatives), ...alternatives(referred)];
  }

  const below = (known: readonly Schema[], key: string) =>
    known.flatMap(({ properties, additionalProperties }) => {
      const own = properties !== undefined && Object.hasOwn(properties, key) ? properties[key] : undefined;
      const any = typeof additionalProperties === "object" ? additionalProperties : undefined;
      return alternatives(own ?? any);
    });

  function shown(value: unknown, known: readonly Schema[], isSecret: boolean): unknown {
    if (value === null) return null;
    if (known.length === 0) return hide(value);
    if (Array.isArray(value)) {
      const items = known.flatMap(({ items: each }) => (Array.isArray(each) ? each : [each ?? {}]));
      const own = items.flatMap((each: Schema) => alternatives(each));
      return value.map((each) => shown(each, own, isSecret));
    }
    if (typeof value === "object") {
      const reference = secretReference(value);
      if (reference !== null) return shownReference(reference);
      return Object.fromEntries(
        Object.entries(value).map(([key, each]) => [
          key.length > LONGEST_KEY ? hide(key) : key,
          shown(each, below(known, key), isSecret || SECRET_KEY.test(key)),
        ]),
      );
    }
    if (typeof value === "string" && PLACEHOLDER.test(value)) return value;
    if (isSecret || !known.some((schema) => accepts(schema, value))) return hide(value);
    return typeof value === "string" ? maskText(value) : value;
  }

  function shownReference({ file, env }: Reference): Reference {
    if (file !== undefined) return { file: maskText(file) };
    const name = env ?? "";
    return { env: VARIABLE.test(name) || environment[name] !== undefined ? name : hide(name) };
  }

  function hide(value: unknown): typeof MASKED {
    if (typeof value === "string") hidden.push(value);
    else if (typeof value === "object" && value !== null) Object.values(value).forEach(hide);
    return MASKED;
  }

  return { content: shown(content, alternatives(root), false), hidden };
}

interface Reference {
  readonly file?: string;
  readonly env?: string;
}

export function secretReferences(content: unknown): readonly Reference[] {
  if (typeof content !== "object" || content === null) return [];
  const reference = secretReference(content);
  return reference === null ? Object.values(content).flatMap(secretReferences) : [reference];
}

function secretReference(value: object): Reference | null {
  const entries = Object.entries(value);
  const [[key, text] = []] = entries;
  if (entries.length !== 1 || typeof text !== "string") return null;
  return key === "file" ? { file: text } : key === "env" ? { env: text } : null;
}

function accepts(schema: Schema, value: unknown): boolean {
  if (schema.const !== undefined) return schema.const === value;
  if (schema.enum !== undefined) return schema.enum.includes(value);
  const types = [schema.type ?? []].flat();
  if (typeof value === "number") return types.includes("number") || types.includes("integer");
  return types.includes(typeof value);
}

const URL_IN_TEXT = /\b[a-z][a-z0-9+.-]*:\/\/[^\s"'<>]*[^\s"'<>.,;:)]/gi;
/** `api`, `v1`, `hooks`. */
const PLAIN_STEP = /^([a-z][a-z_-]{0,15}|v\d{1,2})?$/;
/** Known key prefixes, JWTs, PEM blocks, long hexadecimal numbers. */
const KEYS_OF_MACHINES = [
  /\b\d{1,10}\|[A-Za-z0-9+/=_-]{16,}/g,
  /\b(whsec|xox[a-z]|ghp|gho|glpat|sk|pk|rk|AKIA|ASIA)[_-]?[A-Za-z0-9+/=_-]{12,}/g,
  /\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)?/g,
  /-----BEGIN [^-]+-----[\s\S]*?(-----END [^-]+-----|$)/g,
  /\b[0-9a-fA-F]{32,}\b/g,
] as const;
const LONG_ROW = /[A-Za-z0-9+/_-]{20,}={0,2}/g;
const TIME_IN_NAME = /\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-\d{3}Z/g;
const MIXED = [/\d/, /[a-z]/, /[A-Z]/];
const NAMED_SECRET =
  /\b((?:[a-z_-]*(?:passw(?:or)?d|secret|token|api[_-]?key|credential)s?)["']?\s*[=:]\s*["']?)(?!\[|\{|null\b|true\b|false\b)[^\s"',;}&]+/gi;

/** URLs lose user, query and path segments that may be keys. */
export function maskText(text: string): string {
  const plain = withoutCredentials(text).replace(URL_IN_TEXT, maskUrl).replace(NAMED_SECRET, `$1${MASKED}`);
  return KEYS_OF_MACHINES.reduce((left, pattern) => left.replace(pattern, MASKED), plain).replace(LONG_ROW, (row) =>
    looksRandom(row) ? MASKED : row,
  );
}

function looksRandom(row: string): boolean {
  if (row.startsWith("/"))
    return row
      .slice(1)
      .split("/")
      .some((step) => step.length >= 20 && looksRandom(step));
  const rest = row.replace(TIME_IN_NAME, "");
  return MIXED.every((kind) => kind.test(rest));
}

function maskUrl(text: string): string {
  if (!URL.canParse(text)) return MASKED;
  const { protocol, host, pathname, search } = new URL(text);
  if (pathname === "/" && search === "") return `${protocol}//${host}${text.endsWith("/") ? "/" : ""}`;
  const steps = pathname.split("/").map((step) => (PLAIN_STEP.test(step) ? step : MASKED));
  return `${protocol}//${host}${steps.join("/")}${search === "" ? "" : `?${MASKED}`}`;
}
