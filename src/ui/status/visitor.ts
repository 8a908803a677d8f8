import type { Context } from "hono";
import type { TrustedProxy } from "./config.ts";
import { ownerOf, plainAddress } from "./connections.ts";

/** The connection of a request; an empty object in a test without one. */
export function socketOf(context: Context): { readonly remoteAddress?: string } {
  const { incoming } = (context.env ?? {}) as {
    readonly incoming?: { readonly socket?: { readonly remoteAddress?: string } };
  };
  return incoming?.socket ?? {};
}

/** The address of the client or the proxy; empty in a test without one. */
function socketAddress(context: Context): string {
  return plainAddress(socketOf(context).remoteAddress ?? "");
}

function isProxy(context: Context, proxy: string | undefined): boolean {
  return proxy !== undefined && socketAddress(context) === plainAddress(proxy);
}

/** A name that is put into a sentence as it is: no control characters, and not without an end. */
const NAME = /^[^\p{C}\p{Z}](?:[^\p{C}]{0,98}[^\p{C}\p{Z}])?$/u;

/** Name of an anonymous visitor. */
const ANYBODY = "the status page";

/** Who asks, for the record: whom the trusted proxy names, otherwise only that it came by the status page. */
export function namedIn(context: Context, proxy: TrustedProxy | undefined): string {
  if (proxy?.user_header === undefined || !isProxy(context, proxy.address)) return ANYBODY;
  const name = context.req.header(proxy.user_header)?.trim() ?? "";
  return NAME.test(name) ? `${name} via proxy` : ANYBODY;
}

/** Name of the visitor of the status page; null when no proxy names one. */
export function personIn(context: Context, proxy: TrustedProxy | undefined): string | null {
  const name = namedIn(context, proxy);
  return name === ANYBODY ? null : name;
}

/**
 * Whom a request is counted for: the owner of the address that the connection comes from. Behind the trusted proxy it
 * is the one that the proxy saw, which it puts last; what stands before it in the header anybody may have written.
 */
export function visitorOf(context: Context, proxy: string | undefined): string {
  const seen = context.req.header("x-forwarded-for")?.split(",").at(-1)?.trim() ?? "";
  return ownerOf(isProxy(context, proxy) && seen !== "" ? seen : socketAddress(context));
}
