import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { extname } from "node:path";
import { fileURLToPath } from "node:url";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";
import type { Hono } from "hono";

/** Files of the status page. Each is compressed at its first request, and sent again only after a change. */

type Encoding = "br" | "gzip" | "identity";

interface Asset {
  readonly file: string;
  readonly type: string;
}

interface Content {
  readonly etag: string;
  readonly bodies: Readonly<Record<Encoding, Uint8Array<ArrayBuffer>>>;
}

const SCRIPT = "text/javascript; charset=utf-8";
const STYLE = "text/css; charset=utf-8";
const TYPES: Readonly<Record<string, string>> = { ".mjs": SCRIPT, ".css": STYLE, ".svg": "image/svg+xml" };
const PAGE = fileURLToPath(new URL("./page/", import.meta.url));

export const ASSETS: Readonly<Record<string, Asset>> = {
  "/": { file: `${PAGE}index.html`, type: "text/html; charset=utf-8" },
  ...Object.fromEntries(
    readdirSync(PAGE).flatMap((name) => {
      const type = TYPES[extname(name)];
      return type === undefined ? [] : [[`/${name}`, { file: PAGE + name, type }]];
    }),
  ),
  "/htm.mjs": packaged("htm/preact/standalone", SCRIPT),
  "/uplot.mjs": packaged("uplot/dist/uPlot.esm.js", SCRIPT),
  "/uplot.css": packaged("uplot/dist/uPlot.min.css", STYLE),
};

function packaged(specifier: string, type: string): Asset {
  return { file: fileURLToPath(import.meta.resolve(specifier)), type };
}

function load(file: string): Content {
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

export function assetRoutes(app: Hono): void {
  for (const [path, { file, type }] of Object.entries(ASSETS)) {
    let content: Content | undefined;
    app.get(path, (context) => {
      content ??= load(file);
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
