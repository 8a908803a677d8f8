import { ConfigError } from "../../errors/errors.ts";
import type { Clock } from "../../runtime/clock.ts";
import { cachedSecret, type SecretRef } from "../../runtime/secret.ts";

export function createHeaderReader(headers: Readonly<Record<string, string | SecretRef>>, clock: Clock) {
  const texts = Object.entries(headers).map(([name, value]) => {
    if (typeof value === "string") return [name.toLowerCase(), () => value] as const;
    const secret = cachedSecret(value, clock);
    return [name.toLowerCase(), () => requireHeaderText(secret().reveal(), name)] as const;
  });
  return () => Object.fromEntries(texts.map(([name, text]) => [name, text()]));
}

export function requireHeaderText(text: string, name: string): string {
  if (/^[\x20-\x7e]*$/.test(text)) return text;
  throw new ConfigError(`The secret for the header ${name} has to be one line of plain ASCII characters.`, {
    field: "headers",
  });
}
