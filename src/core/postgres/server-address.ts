import { z } from "zod";
import type { ServerInfo } from "../http/connection-problem.ts";
import { isLoopbackHost } from "../http/loopback.ts";

export interface PostgresAddress {
  /** Host name, IP address without brackets, or path of a local socket. */
  readonly host: string;
  readonly port: number;
  readonly database: string;
  readonly user: string;
  readonly sslmode: SslMode;
}

type PostgresAddressParts = { readonly url?: string | undefined } & {
  readonly [Part in keyof PostgresAddress]?: PostgresAddress[Part] | undefined;
};

export type SslMode = "verify-full" | "disable";

const DEFAULT_POSTGRES_PORT = 5432;
const MULTI_SERVER_URL = /^(postgres(?:ql)?:\/\/(?:[^@/?#]*@)?)([^/?#]*)(.*)$/;

/** Splits a URL with several servers, e.g. `postgresql://plenum@a:5432,b:5433/plenum`, into one URL per server. */
export function serverUrls(text: string): readonly string[] {
  const [, urlBeforeServers, servers, urlAfterServers] = MULTI_SERVER_URL.exec(text) ?? [];
  if (servers === undefined) return [text];
  return servers.split(",").map((server) => `${urlBeforeServers}${server}${urlAfterServers}`);
}

/** Parses an address from a URL such as `postgresql://plenum@db.example.com:5432/buildings`, or joins its parts. */
export function parsePostgresAddress(parts: PostgresAddressParts): PostgresAddress {
  const url = parts.url === undefined ? null : URL.parse(parts.url);
  const host = (url === null ? (parts.host ?? "") : decodeUriText(url.hostname)).replace(/^\[|\]$/g, "");
  const sslmode = url?.searchParams.get("sslmode") ?? parts.sslmode;
  return {
    host,
    port: url === null ? (parts.port ?? DEFAULT_POSTGRES_PORT) : Number(url.port || DEFAULT_POSTGRES_PORT),
    database: url === null ? (parts.database ?? "") : decodeUriText(url.pathname.slice(1)),
    user: url === null ? (parts.user ?? "") : decodeUriText(url.username),
    sslmode: sslmode === "disable" || (sslmode === undefined && isSocketPath(host)) ? "disable" : "verify-full",
  };
}

function decodeUriText(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function isSecuredAddress({ host, sslmode }: PostgresAddress): boolean {
  return sslmode === "verify-full" || isSocketPath(host) || isLoopbackHost(host);
}

function isSocketPath(host: string): boolean {
  return host.startsWith("/");
}

export function describePostgresServer(address: PostgresAddress): ServerInfo {
  return {
    name: `The database server at ${formatPostgresAddress(address)}`,
    failureText: "could not be reached",
    addressOption: "host",
    caOption: "ca_file",
    secureSetting: "sslmode: verify-full",
    plaintextSetting: "sslmode: disable",
  };
}

export function formatPostgresAddress({ host, port }: Pick<PostgresAddress, "host" | "port">): string {
  return isSocketPath(host) ? host : `${host.includes(":") ? `[${host}]` : host}:${port}`;
}

const SSL_MODE_COMPLAINTS: Readonly<Record<string, string>> = {
  allow: "sslmode allow goes on without TLS where the server wants it so; write verify-full, or disable.",
  prefer: "sslmode prefer goes on without TLS where the server has none; write verify-full, or disable.",
  "no-verify": "A certificate that is not checked proves nothing; write verify-full, and ca_file.",
};

/** Option `sslmode`. `require` and `verify-ca` mean `verify-full`, so the server's name is always checked. */
export const SslModeOption = z
  .string()
  .superRefine((word, context) => {
    if (["verify-full", "verify-ca", "require", "disable"].includes(word)) return;
    context.addIssue({ code: "custom", message: SSL_MODE_COMPLAINTS[word] ?? "Write verify-full, or disable." });
  })
  .transform((word): SslMode => (word === "disable" ? "disable" : "verify-full"));

/** Schema of a PostgreSQL URL without a password, with one server or with several of which one is the primary. */
export function postgresUrlSchema(servers: "one" | "several") {
  return z.string().superRefine((text, context) => {
    const addUrlIssue = (message: string | undefined) => {
      if (message !== undefined) context.addIssue({ code: "custom", message });
    };
    const urls = serverUrls(text).map((serverUrl) => URL.parse(serverUrl));
    const [url] = urls;
    const isCompleteUrl = (serverUrl: URL | null) =>
      serverUrl !== null && /^postgres(ql)?:$/.test(serverUrl.protocol) && serverUrl.hostname !== "";
    if (url === undefined || url === null || !urls.every(isCompleteUrl) || (servers === "one" && urls.length > 1)) {
      addUrlIssue("Write a whole address, such as postgresql://plenum@db.example.com:5432/buildings.");
      return;
    }
    if (url.password !== "") addUrlIssue("Leave the password out of the address; use the option password.");
    if (url.username === "") addUrlIssue("The address names no user: postgresql://plenum@….");
    if (url.pathname.length < 2) addUrlIssue("The address names no database: …/buildings.");
    for (const [name, value] of url.searchParams) {
      if (name !== "sslmode") addUrlIssue(`Behind the address only sslmode may stand, not ${name}.`);
      else addUrlIssue(SslModeOption.safeParse(value).error?.issues[0]?.message);
    }
  });
}

export const SchemaName = z
  .string()
  .regex(/^(?!pg_)[a-z_][a-z0-9_]{0,62}$/, "Use lower-case letters, digits and `_`, at most 63, and not pg_ in front.");
