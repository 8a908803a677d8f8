import { createRequire } from "node:module";

/**
 * Keeps a process to one undici. Node.js brings one of its own for `fetch` and its classes, and loads it as soon as any of
 * them is touched: by hono, which wants `Request`, and by everybody who imports `node:http`, because an import touches every
 * name of a module and `WebSocket` is one of them. `import("node:http")` alone took 58 ms of processor time and 60 MB at
 * most, and 28 ms and 46 MB without that copy. Whoever touches one of the names gets that of the package, which is loaded
 * then: the package's own `install()` would load it at every start.
 *
 * Has to be imported before `node:http` is: main.ts does so first of all.
 */

type Undici = typeof import("undici");

const require = createRequire(import.meta.url);

const OF_UNDICI = [
  "CloseEvent",
  "FormData",
  "Headers",
  "MessageEvent",
  "Request",
  "Response",
  "WebSocket",
  "fetch",
] as const satisfies readonly (keyof Undici)[];

for (const name of OF_UNDICI) {
  // Defined anew without that, the old one would be looked at, and so loaded.
  Reflect.deleteProperty(globalThis, name);
  Object.defineProperty(globalThis, name, {
    configurable: true,
    get: () => (require("undici") as Undici)[name],
    set(value: unknown) {
      Object.defineProperty(globalThis, name, { configurable: true, writable: true, value });
    },
  });
}

const http: Record<string, unknown> = process.getBuiltinModule("node:http");
for (const name of ["CloseEvent", "MessageEvent", "WebSocket"]) delete http[name];
