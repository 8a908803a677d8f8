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
  type Guard,
  guard,
  roleIn,
  STOP_PATH,
  sameOriginOnly,
  securityHeaders,
  visitorName,
} from "./access-control.ts";
import { limitConnections, listen, listeningService, REQUEST_TIMES } from "./connection-limits.ts";
import { eventSummary } from "./event-summary.ts";
import type { Readiness } from "./health.ts";
import { type ActionRoutes, actionRoutes, type Responses, responseRoutes } from "./page-api.ts";
import { type SilenceRoutes, silenceRoutes } from "./silence-routes.ts";
import type { StatusConfig } from "./status-config.ts";
import type { Status } from "./status-report.ts";

type Encoding = "br" | "gzip" | "identity";

interface Asset {
  readonly file: string;
  readonly type: string;
}

const SCRIPT_TYPE = "text/javascript; charset=utf-8";
const STYLE_TYPE = "text/css; charset=utf-8";
const TYPES: Readonly<Record<string, string>> = { ".mjs": SCRIPT_TYPE, ".css": STYLE_TYPE, ".svg": "image/svg+xml" };
const PAGE_FOLDER = fileURLToPath(new URL("./page/", import.meta.url));
export const ASSETS: Readonly<Record<string, Asset>> = {
  "/": { file: `${PAGE_FOLDER}index.html`, type: "text/html; charset=utf-8" },
  ...Object.fromEntries(
    readdirSync(PAGE_FOLDER).flatMap((name) => {
      const type = TYPES[extname(name)];
      return type === undefined ? [] : [[`/${name}`, { file: PAGE_FOLDER + name, type }]];
    }),
  ),
  "/htm.mjs": packageAsset("htm/preact/standalone", SCRIPT_TYPE),
  "/uplot.mjs": packageAsset("uplot/dist/uPlot.esm.js", SCRIPT_TYPE),
  "/uplot.css": packageAsset("uplot/dist/uPlot.min.css", STYLE_TYPE),
};

function packageAsset(specifier: string, type: string): Asset {
  return { file: fileURLToPath(import.meta.resolve(specifier)), type };
}

function compressAsset(file: string) {
  const identity = new Uint8Array(readFileSync(file));
  const params = { [constants.BROTLI_PARAM_SIZE_HINT]: identity.length, [constants.BROTLI_PARAM_QUALITY]: 9 };
  return {
    etag: createHash("sha256").update(identity).digest("base64url").slice(0, 22),
    bodies: {
      identity,
      br: new Uint8Array(brotliCompressSync(identity, { params })),
      gzip: new Uint8Array(gzipSync(identity)),
    },
  };
}

/** The best encoding that the browser accepts; `q=0` excludes one. */
function encodingFor(accepted: string): Encoding {
  const names = accepted
    .toLowerCase()
    .split(",")
    .filter((each) => !/;\s*q=0(\.0*)?\s*$/.test(each))
    .map((each) => each.split(";")[0]?.trim());
  return names.includes("br") ? "br" : names.includes("gzip") ? "gzip" : "identity";
}

function assetRoutes(app: Hono): void {
  for (const [path, { file, type }] of Object.entries(ASSETS)) {
    let content: ReturnType<typeof compressAsset> | undefined;
    app.get(path, (context) => {
      content ??= compressAsset(file);
      const encoding = encodingFor(context.req.header("accept-encoding") ?? "");
      const etag = `"${content.etag}-${encoding}"`;
      // The browser revalidates each file, so that a page never mixes two versions.
      const headers = { etag, "cache-control": "no-cache", vary: "accept-encoding" };
      if (context.req.header("if-none-match") === etag) return context.body(null, 304, headers);
      return context.body(content.bodies[encoding], 200, {
        ...headers,
        "content-type": type,
        ...(encoding === "identity" ? {} : { "content-encoding": encoding }),
      });
    });
  }
}

/** Health, metrics and the status page. Operations that the page does not offer use the control socket. */
export interface StatusServerOptions extends Guard, SilenceRoutes, ActionRoutes {
  readonly config: StatusConfig;
  readonly clock: Pick<Clock, "monotonic" | "now" | "sleep">;
  readonly status: Status;
  readonly answers: Responses;
  readonly outbox: Pick<Outbox, "latest" | "resendDeadLetters">;
  readonly metrics: Pick<Registry, "contentType" | "metrics">;
  readonly readiness: () => Promise<Readiness>;
  readonly refresh: () => Promise<void>;
  readonly log: Log;
  /** Activates the kill switch for writing; null when nothing can be written. Only the command line resets it. */
  readonly stopWrites: ((by: string) => Promise<void> | void) | null;
  readonly fleet?: () => Promise<object>;
}

export interface StatusServer extends WorkerService {
  url(): string;
}

/** Kinds on the page: without values and history, which come by the hundred a minute and have views of their own. */
const LISTED_KINDS = EVENT_KINDS.filter((kind) => !isTelemetry(kind) && kind !== "worker-alive");
const MAX_EVENTS = 50;

export function statusRoutes(options: StatusServerOptions): Hono {
  const { answers, config, fleet, log, metrics, outbox, status, stopWrites } = options;
  const app = new Hono();
  app.use(securityHeaders);
  app.onError((error, context) => {
    const request = randomUUID();
    log.error({ err: error, path: context.req.path, request }, "a status request failed");
    return context.json({ message: `This request failed; the log says why (request ${request}).` }, 500);
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
  app.post(STOP_PATH, sameOriginOnly, async (context) => {
    if (stopWrites === null) return context.json({ message: "Writing is not switched on." }, 409);
    await stopWrites(visitorName(context, config));
    return context.json({ stopped: true });
  });
  app.route("/api/silences", silenceRoutes(options));
  app.route("/api", responseRoutes(answers, status));
  app.route("/api", actionRoutes(options));
  app.get("/api/events", async (context) =>
    context.json((await outbox.latest(MAX_EVENTS, LISTED_KINDS)).map((event) => eventSummary(event))),
  );
  assetRoutes(app);
  return app;
}

export function createStatusServer(options: StatusServerOptions): StatusServer {
  const { host, port, trusted_proxy } = options.config;
  let address: AddressInfo | undefined;
  const service = listeningService("status", async () => {
    const { fetch } = statusRoutes(options);
    // The default is an HTTP/1.1 server, which has these time limits.
    const server = createAdaptorServer({ fetch, serverOptions: REQUEST_TIMES }) as Server;
    limitConnections(server, trusted_proxy?.address);
    await listen(server, { host, port }, (error) => cannotListen(error, host, port));
    address = server.address() as AddressInfo;
    return server;
  });
  return {
    ...service,
    url: () => `http://${host.includes(":") ? `[${host}]` : host}:${address?.port ?? port}`,
  };
}

/** Tries to listen on the address of the status page. Throws ConfigError if that fails. */
export async function tryAddress(host: string, port: number): Promise<void> {
  const server = createServer();
  await listen(server, { host, port }, (error) => cannotListen(error, host, port));
  await new Promise((resolve) => server.close(resolve));
}

function cannotListen(error: NodeJS.ErrnoException, host: string, port: number): ConfigError {
  const isForeign = error.code === "EADDRNOTAVAIL" || error.code === "ENOTFOUND";
  const reason = error.code === "EADDRINUSE" ? "is in use by another program" : `cannot be used (${error.code})`;
  const hint = isForeign
    ? "Set status.host to an address of this machine, such as 127.0.0.1."
    : "Set status.port to a free port, or to 0 for any free one.";
  return new ConfigError(`The status page's address ${host}:${port} ${reason}.`, { hint, cause: error });
}
