import { randomUUID } from "node:crypto";
import type { Server } from "node:http";
import { type AddressInfo, createServer } from "node:net";
import { createAdaptorServer } from "@hono/node-server";
import type { Registry } from "@prometheus-io/client";
import { Hono } from "hono";
import { compress } from "hono/compress";
import { ConfigError } from "../../core/errors/errors.ts";
import { isTelemetry, KINDS } from "../../core/model/event.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { type Service, startedOnce } from "../../core/runtime/lifecycle.ts";
import type { Log } from "../../core/runtime/log.ts";
import type { Outbox } from "../../engine/store/store.ts";
import { type Guard, guard, roleIn, STOP, sameOriginOnly, securityHeaders, visitorName } from "./access.ts";
import { assetRoutes } from "./assets.ts";
import type { StatusConfig } from "./config.ts";
import { limitConnections, REQUEST_TIMES } from "./connections.ts";
import { shownEvent } from "./events.ts";
import type { Readiness } from "./readiness.ts";
import type { Status } from "./report.ts";
import type { Responses } from "./responses.ts";
import { type ActionRoutes, actionRoutes, responseRoutes } from "./routes.ts";
import { type SilenceRoutes, silenceRoutes } from "./silences.ts";

/**
 * Health, metrics and the status page. The page can stop all writing; with a password it also begins and ends silences, passes
 * writes to the gate, and has dead letters sent again. Everything else that operates the worker uses the control socket.
 */
export interface StatusServerOptions extends Guard, SilenceRoutes, ActionRoutes {
  readonly config: StatusConfig;
  readonly clock: Pick<Clock, "monotonic" | "now" | "sleep">;
  readonly status: Status;
  readonly answers: Responses;
  readonly outbox: Pick<Outbox, "latest" | "resendDeadLetters">;
  readonly metrics: Pick<Registry, "contentType" | "metrics">;
  readonly readiness: () => Promise<Readiness>;
  /** Called before each scrape, for gauges that are computed on demand. */
  readonly refresh: () => Promise<void>;
  readonly log: Log;
  /** Activates the kill switch for writing; null when nothing can be written. Only the command line resets it. */
  readonly stopWrites: ((by: string) => Promise<void> | void) | null;
  /** Members of the fleet and their sources; absent for a single worker. */
  readonly fleet?: () => Promise<object>;
}

export interface StatusServer extends Service {
  /** Base address without a trailing slash, after the start. */
  url(): string;
}

/** Kinds on the page: without values and history, which come by the hundred a minute and have views of their own. */
const EVENT_KINDS = KINDS.filter((kind) => !isTelemetry(kind) && kind !== "worker-alive");
const EVENTS = 50;

export function statusRoutes(options: StatusServerOptions): Hono {
  const { answers, config, fleet, log, metrics, outbox, status, stopWrites } = options;
  const app = new Hono();
  app.use(securityHeaders);
  app.onError((error, context) => {
    const request = randomUUID();
    log.error({ err: error, path: context.req.path, request }, "a status request failed");
    return context.json({ message: `This could not be answered; the log says why (request ${request}).` }, 500);
  });

  // Uses no database, so that a slow disk does not cause a restart.
  app.get("/healthz", (context) => context.text("ok\n"));
  app.get("/readyz", async (context) => {
    const readiness = await options.readiness();
    return context.json(readiness, readiness.ready ? 200 : 503);
  });

  app.use(guard(options));
  // Gzip reduces a list of a hundred alarms from 60 kB to 6 kB; brotli costs more than it saves here.
  app.use("/api/*", compress());
  app.use("/metrics", compress());
  app.get("/metrics", async (context) => {
    await options.refresh();
    return context.body(await metrics.metrics(), 200, { "content-type": metrics.contentType });
  });
  app.get("/api/status", async (context) =>
    context.json({ ...(await status.report()), needsPassword: roleIn(context) === null }),
  );
  app.get("/api/fleet", async (context) =>
    fleet === undefined
      ? context.json({ message: "This worker is no member of a fleet." }, 404)
      : context.json(await fleet()),
  );
  app.post(STOP, sameOriginOnly, async (context) => {
    if (stopWrites === null) return context.json({ message: "Writing is not switched on." }, 409);
    await stopWrites(visitorName(context, config));
    return context.json({ stopped: true });
  });
  app.route("/api/silences", silenceRoutes(options));
  app.route("/api", responseRoutes(answers, status));
  app.route("/api", actionRoutes(options));
  app.get("/api/events", async (context) =>
    context.json((await outbox.latest(EVENTS, EVENT_KINDS)).map((event) => shownEvent(event))),
  );
  assetRoutes(app);
  return app;
}

export function createStatusServer(options: StatusServerOptions): StatusServer {
  const { host, port, trusted_proxy } = options.config;
  let server: Server | undefined;

  async function close(): Promise<void> {
    const running = server;
    server = undefined;
    if (running === undefined) return;
    await new Promise<void>((resolve) => {
      running.close(() => resolve());
      running.closeAllConnections();
    });
  }

  return startedOnce({
    name: "status",
    url() {
      const address = server?.address() as AddressInfo | null | undefined;
      return `http://${host.includes(":") ? `[${host}]` : host}:${address?.port ?? port}`;
    },
    async start(signal: AbortSignal) {
      const { fetch } = statusRoutes(options);
      // The default is an HTTP/1.1 server, which has these time limits.
      const created = createAdaptorServer({ fetch, serverOptions: REQUEST_TIMES }) as Server;
      limitConnections(created, trusted_proxy?.address);
      await new Promise<void>((resolve, reject) => {
        created.once("error", (error) => reject(cannotListen(error, host, port)));
        created.listen(port, host, () => resolve());
      });
      server = created;
      signal.addEventListener("abort", () => void close(), { once: true });
      if (signal.aborted) await close();
    },
    stop: close,
  });
}

/** Tries to listen on the address of the status page. Throws ConfigError if that fails. */
export async function tryAddress(host: string, port: number): Promise<void> {
  const server = createServer();
  await new Promise<void>((resolve, reject) => {
    server.once("error", (error) => reject(cannotListen(error, host, port)));
    server.listen(port, host, () => server.close(() => resolve()));
  });
}

function cannotListen(error: NodeJS.ErrnoException, host: string, port: number): ConfigError {
  const isForeign = error.code === "EADDRNOTAVAIL" || error.code === "ENOTFOUND";
  const reason = error.code === "EADDRINUSE" ? "is in use by another program" : `cannot be used (${error.code})`;
  const hint = isForeign
    ? "Set status.host to an address of this machine, such as 127.0.0.1."
    : "Set status.port to a free port, or to 0 for any free one.";
  return new ConfigError(`The status page's address ${host}:${port} ${reason}.`, { hint, cause: error });
}
