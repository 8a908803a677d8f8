import type { Server } from "../http/connection-problem.ts";
import { isLoopback } from "../http/loopback.ts";

/** Address and user of the database. */
export interface Address {
  /** Without brackets; a path for a socket of this machine. */
  readonly host: string;
  readonly port: number;
  readonly database: string;
  readonly user: string;
  readonly sslmode: SslMode;
}

/** Parts of a PostgreSQL address: keywords of libpq, or a URL. */
export interface AddressParts {
  readonly url?: string | undefined;
  readonly host?: string | undefined;
  readonly port?: number | undefined;
  readonly database?: string | undefined;
  readonly user?: string | undefined;
  readonly sslmode?: SslMode | undefined;
}

/** TLS, verified by name and authority, or none. */
const SSL_MODES = ["verify-full", "disable"] as const;
export type SslMode = (typeof SSL_MODES)[number];

const PORT = 5432;

/** Splits an address into scheme and credentials, servers, and the rest. */
const SERVERS = /^(postgres(?:ql)?:\/\/(?:[^@/?#]*@)?)([^/?#]*)(.*)$/;

/** An address for each server of `postgresql://plenum@a:5432,b:5433/plenum`; of any other text it is itself. */
export function urlsOf(text: string): readonly string[] {
  const [, before, servers, behind] = SERVERS.exec(text) ?? [];
  if (servers === undefined) return [text];
  return servers.split(",").map((server) => `${before}${server}${behind}`);
}

/**
 * Parses an address from `postgresql://plenum@db.example.com:5432/buildings?sslmode=verify-full`, or from its parts. The configuration
 * guarantees that it is complete.
 */
export function addressOf(parts: AddressParts): Address {
  const url = parts.url === undefined ? null : URL.parse(parts.url);
  const host = (url === null ? (parts.host ?? "") : decoded(url.hostname)).replace(/^\[|\]$/g, "");
  const sslmode = url?.searchParams.get("sslmode") ?? parts.sslmode;
  return {
    host,
    port: url === null ? (parts.port ?? PORT) : Number(url.port || PORT),
    database: url === null ? (parts.database ?? "") : decoded(url.pathname.slice(1)),
    user: url === null ? (parts.user ?? "") : decoded(url.username),
    // A server speaks no TLS over a socket of its own machine.
    sslmode: sslmode === "disable" || (sslmode === undefined && isSocket(host)) ? "disable" : "verify-full",
  };
}

/** A percent sign that escapes nothing stays one. */
function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** True when the connection is encrypted or local. */
export function staysPrivate({ host, sslmode }: Address): boolean {
  return sslmode === "verify-full" || isSocket(host) || isLoopback(host);
}

function isSocket(host: string): boolean {
  return host.startsWith("/");
}

/** The server in the words of src/core/http/connection-problem.ts. */
export function serverAt(address: Address): Server {
  return {
    name: `The database server at ${displayAddress(address)}`,
    failed: "could not be reached",
    addressOption: "host",
    authorityOption: "ca_file",
    secureScheme: "sslmode: verify-full",
    plainScheme: "sslmode: disable",
  };
}

/** `db.example:5432`, or the folder of a socket. */
export function displayAddress({ host, port }: Pick<Address, "host" | "port">): string {
  return isSocket(host) ? host : `${host.includes(":") ? `[${host}]` : host}:${port}`;
}
