import { ConfigError } from "../../errors/errors.ts";
import type { Clock } from "../../runtime/clock.ts";
import { type SecretRef, secretReader } from "../../runtime/secret.ts";

export function createHeaderReader(headers: Readonly<Record<string, string | SecretRef>>, clock: Clock) {
  const headerTextReaders = Object.entries(headers).map(([name, value]) => {
    if (typeof value === "string") return [name.toLowerCase(), () => value] as const;
    const readHeaderSecret = secretReader(value, clock);
    return [name.toLowerCase(), () => requireHeaderText(readHeaderSecret().reveal(), name)] as const;
  });
  return () => Object.fromEntries(headerTextReaders.map(([name, readText]) => [name, readText()]));
}

export function requireHeaderText(text: string, name: string): string {
  if (/^[\x20-\x7e]*$/.test(text)) return text;
  throw new ConfigError(`The secret for the header ${name} has to be one line of plain ASCII characters.`, {
    field: "headers",
  });
}
