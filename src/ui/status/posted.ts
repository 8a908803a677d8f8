import type { Context, MiddlewareHandler } from "hono";
import { bodyLimit } from "hono/body-limit";
import { every } from "hono/combine";

/** Lets a posted JSON object of so many bytes through, and nothing else. */
export function jsonUpTo(maxSize: number, tooLong: string): MiddlewareHandler {
  const onError = (context: Context) => context.json({ message: tooLong }, 413);
  return every(bodyLimit({ maxSize, onError }), jsonOnly);
}

const jsonOnly: MiddlewareHandler = async (context, next) => {
  if (/^application\/json\b/i.test(context.req.header("content-type") ?? "")) return next();
  return context.json({ message: "Only JSON is taken." }, 415);
};

/** Null for what is no JSON; a schema then refuses it. */
export async function bodyOf(context: Context): Promise<unknown> {
  try {
    return await context.req.json();
  } catch {
    return null;
  }
}
