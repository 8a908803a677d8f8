import { createHash, randomUUID } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import type { Server } from "node:http";
import { type AddressInfo, createServer } from "node:net";
import { extname } from "node:path";
import { fileURLToPath } from "node:url";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";
import { createAdaptorServer } from "@hono/node-server";
import type { Registry } from "@prometheus-io/client";
import { Hono } from "hono";
import { compress } from "hono/compress";
import { ConfigError } from "../../core/errors/errors.ts";
import { EVENT_KINDS, isTelemetry } from "../../core/model/event.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import type { WorkerService } from "../../core/runtime/lifecycle.ts";
import type { Log } from "../../core/runtime/log.ts";
import type { Outbox } from "../../engine/store/store.ts";
import {
  guardPage,
  type PageGuardOptions,
  roleOfRequest,
  STOP_WRITES_PATH,
  sameOriginOnly,
  securityHeaders,
  visitorName,
} from "./access-control.ts";
import { createListeningService, limitConnections, listen, REQUEST_TIMEOUTS } from "./connection-limits.ts";
import { eventSummary } from "./event-summary.ts";
import type { Readiness } from "./health.ts";
import { type PageActionRouteOptions, type PageApi, pageActionRoutes, pageResponseRoutes } from "./page-api.ts";
import { type SilenceRouteOptions, silenceRoutes } from "./silence-routes.ts";
import type { StatusConfig } from "./status-config.ts";
import type { Status } from "./status-report.ts";

type ContentEncoding = "br" | "gzip" | "identity";

const SCRIPT_TYPE = "text/javascript; charset=utf-8";
const STYLE_TYPE = "text/css; charset=utf-8";
const MIME_TYPES: Readonly<Record<string, string>> = {
  ".mjs": SCRIPT_TYPE,
  ".css": STYLE_TYPE,
  ".svg": "image/svg+xml",
};
const PAGE_FOLDER = fileURLToPath(new URL("./page/", import.meta.url));
export const PAGE_FILES: Readonly<Record<string, { readonly file: string; readonly type: string }>> = {
  "/": { file: `${PAGE_FOLDER}index.html`, type: "text/html; charset=utf-8" },
  ...Object.fromEntries(
    readdirSync(PAGE_FOLDER).flatMap((name) => {
      const type = MIME_TYPES[extname(name)];
      return type === undefined ? [] : [[`/${name}`, { file: PAGE_FOLDER + name, type }]];
    }),
  ),
  "/htm.mjs": pageFileOfPackage("htm/preact/standalone", SCRIPT_TYPE),
  "/uplot.mjs": pageFileOfPackage("uplot/dist/uPlot.esm.js", SCRIPT_TYPE),
  "/uplot.css": pageFileOfPackage("uplot/dist/uPlot.min.css", STYLE_TYPE),
};

function pageFileOfPackage(specifier: string, type: string) {
  return { file: fileURLToPath(import.meta.resolve(specifier)), type };
}

function compressPageFile(file: string) {
  const plainBytes = new Uint8Array(readFileSync(file));
  const brotliParams = { [constants.BROTLI_PARAM_SIZE_HINT]: plainBytes.length, [constants.BROTLI_PARAM_QUALITY]: 9 };
  return {
    etag: createHash("sha256").update(plainBytes).digest("base64url").slice(0, 22),
    bodies: {
      identity: plainBytes,
      br: new Uint8Array(brotliCompressSync(plainBytes, { params: brotliParams })),
      gzip: new Uint8Array(gzipSync(plainBytes)),
    },
  };
}

function bestContentEncoding(acceptHeader: string): ContentEncoding {
  const acceptedEncodings = acceptHeader
    .toLowerCase()
    .split(",")
    .filter((encoding) => !/;\s*q=0(\.0*)?\s*$/.test(encoding))
    .map((encoding) => encoding.split(";")[0]?.trim());
  return acceptedEncodings.includes("br") ? "br" : acceptedEncodings.includes("gzip") ? "gzip" : "identity";
}

function addPageFileRoutes(app: Hono): void {
  for (const [path, { file, type }] of Object.entries(PAGE_FILES)) {
    let compressedFile: ReturnType<typeof compressPageFile> | undefined;
    app.get(path, (context) => {
      compressedFile ??= compressPageFile(file);
      const encoding = bestContentEncoding(context.req.header("accept-encoding") ?? "");
      const etag = `"${compressedFile.etag}-${encoding}"`;
      // The browser revalidates each file, so that a page never mixes two versions.
      const headers = { etag, "cache-control": "no-cache", vary: "accept-encoding" };
      if (context.req.header("if-none-match") === etag) return context.body(null, 304, headers);
      return context.body(compressedFile.bodies[encoding], 200, {
        ...headers,
        "content-type": type,
        ...(encoding === "identity" ? {} : { "content-encoding": encoding }),
      });
    });
  }
}

/** Serves health, metrics and the status page. Other operations use the control socket. */
export interface StatusServerOptions extends PageGuardOptions, SilenceRouteOptions, PageActionRouteOptions {
  readonly config: StatusConfig;
  readonly clock: Pick<Clock, "monotonic" | "now" | "sleep">;
  readonly status: Status;
  readonly pageApi: PageApi;
  readonly outbox: Pick<Outbox, "latest" | "resendDeadLetters">;
  readonly metrics: Pick<Registry, "contentType" | "metrics">;
  readonly readiness: () => Promise<Readiness>;
  readonly refreshMetrics: () => Promise<void>;
  readonly log: Log;
  /** Sets the kill switch for writing, which only the command line releases; null if writing is switched off. */
  readonly stopWrites: ((requestedBy: string) => Promise<void> | void) | null;
  readonly fleet?: () => Promise<object>;
}

/** Kinds of events on the page, without values and history, which arrive by the hundred per minute. */
const LISTED_EVENT_KINDS = EVENT_KINDS.filter((kind) => !isTelemetry(kind) && kind !== "worker-alive");
const MAX_LISTED_EVENTS = 50;

export function statusRoutes(options: StatusServerOptions): Hono {
  const { pageApi, config, fleet, log, metrics, outbox, status, stopWrites } = options;
  const app = new Hono();
  app.use(securityHeaders);
  app.onError((error, context) => {
    const requestId = randomUUID();
    log.error({ err: error, path: context.req.path, request: requestId }, "a status request failed");
    return context.json({ message: `This request failed; the log says why (request ${requestId}).` }, 500);
  });

  // `/healthz` uses no database, so that a slow disk does not cause a restart.
  app.get("/healthz", (context) => context.text("ok\n"));
  app.get("/readyz", async (context) => {
    const readiness = await options.readiness();
    return context.json(readiness, readiness.ready ? 200 : 503);
  });
  app.use(guardPage(options));
  // Gzip reduces a list of a hundred alarms from 60 kB to 6 kB; brotli costs more than it saves here.
  app.use("/api/*", compress());
  app.use("/metrics", compress());
  app.get("/metrics", async (context) => {
    await options.refreshMetrics();
    return context.body(await metrics.metrics(), 200, { "content-type": metrics.contentType });
  });
  app.get("/api/status", async (context) =>
    context.json({ ...(await status.report()), needsPassword: roleOfRequest(context) === null }),
  );
  app.get("/api/fleet", async (context) =>
    fleet === undefined
      ? context.json({ message: "This worker is no member of a fleet." }, 404)
      : context.json(await fleet()),
  );
  app.post(STOP_WRITES_PATH, sameOriginOnly, async (context) => {
    if (stopWrites === null) return context.json({ message: "Writing is not switched on." }, 409);
    await stopWrites(visitorName(context, config));
    return context.json({ stopped: true });
  });
  app.route("/api/silences", silenceRoutes(options));
  app.route("/api", pageResponseRoutes(pageApi, status));
  app.route("/api", pageActionRoutes(options));
  app.get("/api/events", async (context) =>
    context.json((await outbox.latest(MAX_LISTED_EVENTS, LISTED_EVENT_KINDS)).map((event) => eventSummary(event))),
  );
  addPageFileRoutes(app);
  return app;
}

export function createStatusServer(options: StatusServerOptions) {
  const { host, port, trusted_proxy } = options.config;
  let address: AddressInfo | undefined;
  const statusService: WorkerService = createListeningService("status", async () => {
    const { fetch } = statusRoutes(options);
    const httpServer = createAdaptorServer({ fetch, serverOptions: REQUEST_TIMEOUTS }) as Server;
    limitConnections(httpServer, trusted_proxy?.address);
    await listen(httpServer, { host, port }, (error) => statusListenError(error, host, port));
    address = httpServer.address() as AddressInfo;
    return httpServer;
  });
  return {
    ...statusService,
    url: () => `http://${host.includes(":") ? `[${host}]` : host}:${address?.port ?? port}`,
  };
}

/** Throws ConfigError if a server cannot listen on this address. */
export async function checkStatusAddress(host: string, port: number): Promise<void> {
  const httpServer = createServer();
  await listen(httpServer, { host, port }, (error) => statusListenError(error, host, port));
  await new Promise((resolve) => httpServer.close(resolve));
}

function statusListenError(error: NodeJS.ErrnoException, host: string, port: number): ConfigError {
  const isUnknownAddress = error.code === "EADDRNOTAVAIL" || error.code === "ENOTFOUND";
  const reason = error.code === "EADDRINUSE" ? "is in use by another program" : `cannot be used (${error.code})`;
  const hint = isUnknownAddress
    ? "Set status.host to an address of this machine, such as 127.0.0.1."
    : "Set status.port to a free port, or to 0 for any free one.";
  return new ConfigError(`The status page's address ${host}:${port} ${reason}.`, { hint, cause: error });
}
