import { createRequire } from "node:module";

/**
 * Prevents a second copy of undici: Node.js loads its own when code uses `fetch` or its classes, as hono and
 * `node:http` do. That copy costs 30 ms and 14 MB. Import this module before `node:http`.
 */

type UndiciModule = typeof import("undici");

const require = createRequire(import.meta.url);

const UNDICI_GLOBALS = [
  "CloseEvent",
  "FormData",
  "Headers",
  "MessageEvent",
  "Request",
  "Response",
  "WebSocket",
  "fetch",
] as const satisfies readonly (keyof UndiciModule)[];

for (const name of UNDICI_GLOBALS) {
  // Delete first: redefining alone would read the old value, and so load the second copy.
  Reflect.deleteProperty(globalThis, name);
  Object.defineProperty(globalThis, name, {
    configurable: true,
    get: () => (require("undici") as UndiciModule)[name],
    set(value: unknown) {
      Object.defineProperty(globalThis, name, { configurable: true, writable: true, value });
    },
  });
}

const httpModule: Record<string, unknown> = process.getBuiltinModule("node:http");
for (const name of ["CloseEvent", "MessageEvent", "WebSocket"]) delete httpModule[name];
