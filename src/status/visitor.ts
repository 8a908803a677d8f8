import type { Context } from "hono";
import { ownerOf } from "./connections.ts";

/** An address as everybody spells it: `::ffff:192.0.2.7` is `192.0.2.7`. */
function plainAddress(address: string): string {
  return address.toLowerCase().replace(/^::ffff:(?=\d+\.)/, "");
}

/** The other end of the connection; empty in a test without one. */
function socketAddress(context: Context): string {
  const { incoming } = (context.env ?? {}) as {
    readonly incoming?: { readonly socket?: { readonly remoteAddress?: string } };
  };
  return plainAddress(incoming?.socket?.remoteAddress ?? "");
}

function isProxy(context: Context, proxy: string | undefined): boolean {
  return proxy !== undefined && socketAddress(context) === plainAddress(proxy);
}

/**
 * Whom a request is counted for: the owner of the address that the connection comes from. Behind the trusted proxy it
 * is the one that the proxy saw, which it puts last; what stands before it in the header anybody may have written.
 */
export function visitorOf(context: Context, proxy: string | undefined): string {
  const seen = context.req.header("x-forwarded-for")?.split(",").at(-1)?.trim() ?? "";
  return ownerOf(isProxy(context, proxy) && seen !== "" ? seen : socketAddress(context));
}
