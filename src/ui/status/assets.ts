import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";
import type { Context, Hono } from "hono";

/** The files of the status page: each compressed once, and sent again only when it changed. */

type Encoding = "br" | "gzip" | "identity";

interface Asset {
  readonly file: string;
  readonly type: string;
}

/** An asset as it is sent; made when it is asked for first, and kept. */
interface Sent {
  readonly etag: string;
  readonly bodies: Readonly<Record<Encoding, Uint8Array<ArrayBuffer>>>;
}

const SCRIPT = "text/javascript; charset=utf-8";
const STYLE = "text/css; charset=utf-8";

/** Modules of the page, in loading order. */
const MODULES = [
  "app",
  "address",
  "alarm",
  "alarms",
  "asking",
  "bars",
  "chart",
  "clock",
  "command-rows",
  "commands",
  "configuration",
  "fleet",
  "header",
  "language",
  "norwegian",
  "order",
  "overview",
  "panels",
  "parts",
  "plan",
  "plot",
  "rights",
  "silences",
  "sink",
  "site",
  "source",
  "still",
  "tag",
  "tags",
  "words",
  "write",
];

export const ASSETS: Readonly<Record<string, Asset>> = {
  "/": own("index.html", "text/html; charset=utf-8"),
  ...Object.fromEntries(MODULES.map((name) => [`/${name}.mjs`, own(`${name}.mjs`, SCRIPT)])),
  ...Object.fromEntries(
    ["colours", "style", "overview", "views"].map((name) => [`/${name}.css`, own(`${name}.css`, STYLE)]),
  ),
  "/favicon.svg": own("favicon.svg", "image/svg+xml"),
  "/htm.mjs": packaged("htm/preact/standalone", SCRIPT),
  "/uplot.mjs": packaged("uplot/dist/uPlot.esm.js", SCRIPT),
  "/uplot.css": packaged("uplot/dist/uPlot.min.css", STYLE),
};

function own(name: string, type: string): Asset {
  return { file: fileURLToPath(new URL(`./page/${name}`, import.meta.url)), type };
}

function packaged(specifier: string, type: string): Asset {
  return { file: fileURLToPath(import.meta.resolve(specifier)), type };
}

function sent(file: string): Sent {
  const identity = new Uint8Array(readFileSync(file));
  const br = brotliCompressSync(identity, {
    params: { [constants.BROTLI_PARAM_SIZE_HINT]: identity.length, [constants.BROTLI_PARAM_QUALITY]: 9 },
  });
  return {
    etag: createHash("sha256").update(identity).digest("base64url").slice(0, 22),
    bodies: { identity, br: new Uint8Array(br), gzip: new Uint8Array(gzipSync(identity)) },
  };
}

/** The best of what the browser takes; one that says nothing, or forbids it by `q=0`, gets it as it is. */
function encodingFor(accepted: string): Encoding {
  const taken = accepted
    .toLowerCase()
    .split(",")
    .map((each) => each.trim())
    .filter((each) => !/;\s*q=0(\.0*)?$/.test(each))
    .map((each) => each.split(";")[0]?.trim());
  return taken.includes("br") ? "br" : taken.includes("gzip") ? "gzip" : "identity";
}

function answer(context: Context, { etag, bodies }: Sent, type: string): Response {
  const encoding = encodingFor(context.req.header("accept-encoding") ?? "");
  const tag = `"${etag}-${encoding}"`;
  // Asked about each time, so that a page never runs with halves of two versions.
  const headers = { etag: tag, "cache-control": "no-cache", vary: "accept-encoding" };
  if (context.req.header("if-none-match") === tag) return context.body(null, 304, headers);
  return context.body(bodies[encoding], 200, {
    ...headers,
    "content-type": type,
    ...(encoding === "identity" ? {} : { "content-encoding": encoding }),
  });
}

export function assetRoutes(app: Hono): void {
  for (const [path, { file, type }] of Object.entries(ASSETS)) {
    let kept: Sent | undefined;
    app.get(path, (context) => {
      kept ??= sent(file);
      return answer(context, kept, type);
    });
  }
}
