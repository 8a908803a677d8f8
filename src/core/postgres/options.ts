import { z } from "zod";
import { type SslMode, urlsOf } from "./address.ts";

/** Options of all PostgreSQL connections. */

/** Reasons why a keyword of libpq is not supported. */
const REFUSED: Readonly<Record<string, string>> = {
  allow: "sslmode allow goes on without TLS where the server wants it so; write verify-full, or disable.",
  prefer: "sslmode prefer goes on without TLS where the server has none; write verify-full, or disable.",
  "no-verify": "A certificate that is not checked proves nothing; write verify-full, and ca_file.",
};

/** `require` and `verify-ca` ask for less than is always done: the name is checked too. */
export const SslModeWord = z
  .string()
  .superRefine((word, context) => {
    if (["verify-full", "verify-ca", "require", "disable"].includes(word)) return;
    context.addIssue({ code: "custom", message: REFUSED[word] ?? "Write verify-full, or disable." });
  })
  .transform((word): SslMode => (word === "disable" ? "disable" : "verify-full"));

/** An address of one server, or of several of which one is the primary. It holds no password. */
export function postgresUrl(servers: "one" | "several") {
  return z.string().superRefine((text, context) => {
    const complain = (message: string) => context.addIssue({ code: "custom", message });
    const urls = urlsOf(text).map((each) => URL.parse(each));
    const [url] = urls;
    const isWhole = (each: URL | null) =>
      each !== null && /^postgres(ql)?:$/.test(each.protocol) && each.hostname !== "";
    if (url === undefined || url === null || !urls.every(isWhole) || (servers === "one" && urls.length > 1)) {
      complain("Write a whole address, such as postgresql://plenum@db.example.com:5432/buildings.");
      return;
    }
    if (url.password !== "") complain("Leave the password out of the address; use the option password.");
    if (url.username === "") complain("The address names no user: postgresql://plenum@….");
    if (url.pathname.length < 2) complain("The address names no database: …/buildings.");
    for (const [name, value] of url.searchParams) {
      if (name !== "sslmode") complain(`Behind the address only sslmode may stand, not ${name}.`);
      else {
        const said = SslModeWord.safeParse(value);
        if (!said.success) complain(said.error.issues[0]?.message ?? "");
      }
    }
  });
}

export const SchemaName = z
  .string()
  .regex(/^(?!pg_)[a-z_][a-z0-9_]{0,62}$/, "Use lower-case letters, digits and `_`, at most 63, and not pg_ in front.");
