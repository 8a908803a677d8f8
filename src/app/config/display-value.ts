import { withoutCredentials } from "../../core/runtime/log.ts";
import { formatDuration } from "../../core/values/duration.ts";
import { Config } from "./config.ts";
import { isText } from "./schema-walk.ts";

/** The longest text of one value, in characters: a list of a thousand tags says nothing to anybody. */
const LONGEST = 160;
const SECRET = "secret";
/** Options below which anything may be a secret: headers that a sink sends along. */
const HEADERS = "headers";

export function isPlain(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** A value of the configuration as a person would write it, in one line; null where there is none. A secret is only called so. */
export function displayValue(path: readonly string[], value: unknown): string | null {
  if (value === undefined || value === null) return null;
  const shown = shownIn(path, value);
  const text = withoutCredentials(typeof shown === "string" ? shown : JSON.stringify(shown));
  return text.length <= LONGEST ? text : `${text.slice(0, LONGEST - 1)}…`;
}

function shownIn(path: readonly string[], value: unknown): unknown {
  if (isSecret(value) || path.includes(HEADERS)) return SECRET;
  if (typeof value === "number") return isText(Config, path) ? formatDuration(value) : value;
  if (typeof value === "string") return path[0] === "sinks" ? addressOnly(value) : value;
  if (Array.isArray(value)) return value.map((entry) => shownIn([...path, "0"], entry));
  if (!isPlain(value)) return value;
  const entries = Object.entries(value).filter(([, inner]) => inner !== undefined);
  return Object.fromEntries(entries.map(([key, inner]) => [key, shownIn([...path, key], inner)]));
}

/** True for a reference to a secret: {file: path} or {env: NAME}. */
export function isSecret(value: unknown): boolean {
  if (!isPlain(value)) return false;
  const [only, ...others] = Object.entries(value);
  return others.length === 0 && (only?.[0] === "file" || only?.[0] === "env") && typeof only[1] === "string";
}

/** Some receivers take their secret as the path of an address. */
function addressOnly(text: string): string {
  const url = /^[a-z][a-z0-9+.-]*:\/\//i.test(text) ? URL.parse(text) : null;
  if (url === null) return text;
  const hasMore = url.pathname.length > 1 || url.search !== "" || url.username !== "" || url.password !== "";
  return `${url.protocol}//${url.host}${hasMore ? "/…" : ""}`;
}
