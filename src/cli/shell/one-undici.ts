import { createRequire } from "node:module";

/**
 * Prevents a second copy of undici in the process. Node.js loads its own copy when code touches `fetch` or its classes:
 * hono touches `Request`, and every import of `node:http` touches `WebSocket`. Without that copy `import("node:http")`
 * takes 28 ms and 46 MB instead of 58 ms and 60 MB. These names now load the undici package at their first use.
 *
 * Import this module before `node:http`.
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
  // Redefining without deleting would read the old value, and so load it.
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
