import { randomUUID } from "node:crypto";
import type { Server } from "node:http";
import type { AddressInfo } from "node:net";
import { createAdaptorServer } from "@hono/node-server";
import type { Registry } from "@prometheus-io/client";
import { Hono } from "hono";
import { compress } from "hono/compress";
import { isTelemetry, KINDS } from "../../core/model/event.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { type Service, startedOnce } from "../../core/runtime/lifecycle.ts";
import type { Log } from "../../core/runtime/log.ts";
import type { Outbox } from "../../engine/store/store.ts";
import { type Actions, actionRoutes } from "./action-routes.ts";
import { addressTrouble } from "./address.ts";
import { assetRoutes } from "./assets.ts";
import type { StatusConfig } from "./config.ts";
import { limitConnections, REQUEST_TIMES } from "./connections.ts";
import type { Credentials } from "./credentials.ts";
import { guard, needsPassword, STOP, sameOriginOnly, securityHeaders } from "./guard.ts";
import type { Readiness } from "./readiness.ts";
import type { Status } from "./report.ts";
import type { Responses } from "./response-builders.ts";
import { responseRoutes } from "./response-routes.ts";
import { shownEvent } from "./rows.ts";
import { type SilenceRoutes, silenceRoutes } from "./silences.ts";
import { namedIn } from "./visitor.ts";

/**
 * Health, metrics and the status page. The page shows, and changes four things: it stops all writing, and with a password
 * it begins and ends silences, hands a write to the gate, and has dead letters sent again. Everything else that operates
 * the worker uses the control socket, which is no part of the page.
 */
export interface StatusServerOptions {
  readonly config: StatusConfig;
  readonly credentials: Credentials | null;
  readonly clock: Pick<Clock, "monotonic" | "now" | "sleep">;
  readonly silencesOf: SilenceRoutes["silencesOf"];
  readonly endSilence: SilenceRoutes["endSilence"];
  readonly status: Status;
  readonly answers: Responses;
  readonly actions: Actions;
  readonly outbox: Pick<Outbox, "latest" | "resendDeadLetters">;
  readonly metrics: Pick<Registry, "contentType" | "metrics">;
  readonly readiness: () => Promise<Readiness>;
  /** Called before each scrape, for gauges that are computed when asked for. */
  readonly refresh: () => Promise<void>;
  readonly log: Log;
  /** Throws the kill switch for writing; null where nothing can be written. Only a person lets it go again. */
  readonly stopWrites: ((by: string) => Promise<void> | void) | null;
  /** Members, and who holds what; absent for a lone worker. */
  readonly fleet?: () => Promise<object>;
}

export interface StatusServer extends Service {
  /** Base address without a trailing slash, once started. */
  url(): string;
}

/** Values and history come by the hundred a minute and have panels of their own. */
const FACTS = KINDS.filter((kind) => !isTelemetry(kind) && kind !== "worker-alive");

const EVENTS_SHOWN = 50;

export function statusRoutes(options: StatusServerOptions): Hono {
  const app = new Hono();
  app.use(securityHeaders);
  app.onError((error, context) => {
    const request = randomUUID();
    options.log.error({ err: error, path: context.req.path, request }, "a status request failed");
    return context.json({ message: `This could not be answered; the log says why (request ${request}).` }, 500);
  });

  // Only shows that the process responds: it uses no database, so a slow disk does not cause a restart.
  app.get("/healthz", (context) => context.text("ok\n"));
  app.get("/readyz", async (context) => {
    const readiness = await options.readiness();
    return context.json(readiness, readiness.ready ? 200 : 503);
  });

  app.use(guard(options));
  // A list of a hundred alarms is 60 kB of JSON, and 6 kB compressed; brotli costs more than it saves here.
  app.use("/api/*", compress());
  app.use("/metrics", compress());
  app.get("/metrics", async (context) => {
    await options.refresh();
    return context.body(await options.metrics.metrics(), 200, {
      "content-type": options.metrics.contentType,
    });
  });
  app.get("/api/status", async (context) =>
    context.json({ ...(await options.status.report()), needsPassword: needsPassword(context) }),
  );
  app.get("/api/fleet", async (context) =>
    options.fleet === undefined
      ? context.json({ message: "This worker is no member of a fleet." }, 404)
      : context.json(await options.fleet()),
  );
  app.post(STOP, sameOriginOnly, async (context) => {
    if (options.stopWrites === null) return context.json({ message: "Writing is not switched on." }, 409);
    await options.stopWrites(namedIn(context, options.config.trusted_proxy));
    return context.json({ stopped: true });
  });
  app.route("/api/silences", silenceRoutes(options));
  app.route("/api", responseRoutes(options.answers, options.status));
  app.route("/api", actionRoutes(options));
  app.get("/api/events", async (context) => {
    const latest = await options.outbox.latest(EVENTS_SHOWN, FACTS);
    return context.json(latest.map(shownEvent));
  });
  assetRoutes(app);
  return app;
}

export function createStatusServer(options: StatusServerOptions): StatusServer {
  const { host, port } = options.config;
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
      const fetch = statusRoutes(options).fetch;
      // Without a server of one's own it is one of HTTP/1.1, whose limits these are.
      const created = createAdaptorServer({ fetch, serverOptions: REQUEST_TIMES }) as Server;
      limitConnections(created, options.config.trusted_proxy?.address);
      await new Promise<void>((resolve, reject) => {
        created.once("error", (error) => reject(addressTrouble(error, host, port)));
        created.listen(port, host, () => resolve());
      });
      server = created;
      signal.addEventListener("abort", () => void close(), { once: true });
      if (signal.aborted) await close();
    },
    stop: close,
  });
}
