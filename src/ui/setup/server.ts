import { readFileSync } from "node:fs";
import type { Server } from "node:http";
import type { AddressInfo } from "node:net";
import { fileURLToPath } from "node:url";
import { createAdaptorServer } from "@hono/node-server";
import { type Context, Hono } from "hono";
import { bodyLimit } from "hono/body-limit";
import { getCookie, setCookie } from "hono/cookie";
import { z } from "zod";
import { ConfigurationError } from "../../app/config/problems.ts";
import { ConfigError, meaningOf, sentence } from "../../core/errors/errors.ts";
import { withoutCredentials } from "../../core/runtime/log.ts";
import { knownHosts, sameOriginOnly, securityHeaders } from "../status/access.ts";
import { limitConnections, REQUEST_TIMES } from "../status/connections.ts";
import { Choices } from "./choices.ts";
import type { EntryCode } from "./entry-code.ts";
import { LookAsked, type PageSetup, WriteAsked } from "./page-setup.ts";

/**
 * Serves the setup page on loopback to a person with the code from the terminal. Requests are POSTs of the page itself; failures are
 * `{message}`, one sentence.
 *
 * | Request | Response |
 * |---|---|
 * | `POST /api/code` `{code}` | 204 and the key as a cookie; 403, or 429 after too many wrong ones |
 * | `GET /api/setup` | the building and the written files so far; 401 without the key |
 * | `POST /api/look` | the building, with proposed choices and their plan |
 * | `POST /api/plan` | the plan of other choices |
 * | `POST /api/write` | the written files |
 * | `POST /api/start` | 202: this server ends and the worker begins |
 */
export interface SetupServerOptions {
  readonly setup: PageSetup;
  readonly entry: EntryCode;
  /** The page asks for the worker, once the configuration is written. */
  readonly onStart: () => void;
}

const COOKIE = "plenum_setup";
/** Largest request in bytes: an address, a token and a few choices. */
const LARGEST_BODY = 32 * 1024;
const HOST = "127.0.0.1";

const ASSETS: Readonly<Record<string, { readonly file: string; readonly type: string }>> = {
  "/": asset("./page/setup.html", "text/html; charset=utf-8"),
  "/setup.mjs": asset("./page/setup.mjs", "text/javascript; charset=utf-8"),
  "/wishes.mjs": asset("./page/wishes.mjs", "text/javascript; charset=utf-8"),
  // The page's words are the status page's own way of having them, with a table of their own.
  "/language.mjs": asset("../status/page/language.mjs", "text/javascript; charset=utf-8"),
  "/norwegian.mjs": asset("./page/norwegian.mjs", "text/javascript; charset=utf-8"),
  "/colours.css": asset("../status/page/colours.css", "text/css; charset=utf-8"),
  "/setup.css": asset("./page/setup.css", "text/css; charset=utf-8"),
  "/favicon.svg": asset("../status/page/favicon.svg", "image/svg+xml"),
  "/htm.mjs": {
    file: fileURLToPath(import.meta.resolve("htm/preact/standalone")),
    type: "text/javascript; charset=utf-8",
  },
};

function asset(file: string, type: string) {
  return { file: fileURLToPath(new URL(file, import.meta.url)), type };
}

function setupRoutes({ setup, entry, onStart }: SetupServerOptions): Hono {
  const app = new Hono();
  app.use(securityHeaders);
  app.use(knownHosts(HOST));
  app.onError((error, context) => {
    const { kind } = meaningOf(error);
    const [problem] = error instanceof ConfigurationError ? error.problems : [];
    const message = withoutCredentials(problem === undefined ? sentence(error) : problem.message);
    return context.json({ message }, kind === "config" || error instanceof NotUnderstood ? 400 : 502);
  });
  app.use(
    bodyLimit({
      maxSize: LARGEST_BODY,
      onError: (context) => context.json({ message: "That is too long." }, 413),
    }),
  );
  app.post("*", sameOriginOnly);
  app.post("/api/code", async (context) => {
    const { code } = await bodyOf(context, z.strictObject({ code: z.string().max(100) }));
    const entered = entry.enter(code);
    if (entered === null)
      return context.json(
        { message: "This is not the code. It stands in the terminal, and is good for one browser." },
        403,
      );
    if (typeof entered === "object") {
      const seconds = Math.ceil(entered.waitMs / 1_000);
      context.header("retry-after", String(seconds));
      return context.json({ message: `Too many wrong codes; wait ${seconds} s.` }, 429);
    }
    setCookie(context, COOKIE, entered, { httpOnly: true, sameSite: "Strict", path: "/" });
    return context.body(null, 204);
  });
  app.use("/api/*", (context, next) =>
    entry.isKey(getCookie(context, COOKIE))
      ? next()
      : Promise.resolve(context.json({ message: "Enter the code that stands in the terminal." }, 401)),
  );
  app.get("/api/setup", ({ json }) => json({ looked: setup.looked, written: setup.written }));
  app.post("/api/look", async (context) =>
    context.json(await setup.look(await bodyOf(context, LookAsked), context.req.raw.signal)),
  );
  app.post("/api/plan", async (context) => context.json(setup.plan(await bodyOf(context, Choices))));
  app.post("/api/write", async (context) => context.json(setup.write(await bodyOf(context, WriteAsked))));
  app.post("/api/start", (context) => {
    if (setup.written === null) return context.json({ message: "There is no configuration yet." }, 409);
    onStart();
    return context.json({}, 202);
  });
  for (const [path, { file, type }] of Object.entries(ASSETS))
    app.get(path, (context) => context.body(readFileSync(file), 200, { "content-type": type }));
  return app;
}

class NotUnderstood extends Error {}

async function bodyOf<T extends z.ZodType>(context: Context, schema: T): Promise<z.output<T>> {
  const body: unknown = await context.req.json().catch(() => null);
  const parsed = schema.safeParse(body);
  if (parsed.success) return parsed.data;
  throw new NotUnderstood("The page asked for something that there is not; load it again.");
}

export interface SetupServer {
  readonly url: string;
  close(): Promise<void>;
}

/** Listens on loopback; rejects with ConfigError where the port is taken. */
export async function startSetupServer(options: SetupServerOptions, port: number): Promise<SetupServer> {
  const { fetch } = setupRoutes(options);
  const server = createAdaptorServer({ fetch, serverOptions: REQUEST_TIMES }) as Server;
  limitConnections(server);
  await new Promise<void>((resolve, reject) => {
    server.once("error", ({ code }: NodeJS.ErrnoException) =>
      reject(new ConfigError(`The port ${port} of ${HOST} cannot be used (${code}).`)),
    );
    server.listen(port, HOST, resolve);
  });
  const { port: taken } = server.address() as AddressInfo;
  return {
    url: `http://${HOST}:${taken}`,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeIdleConnections();
        // Responses in flight are sent; idle connections are closed.
        setTimeout(() => server.closeAllConnections(), 500).unref();
      }),
  };
}
