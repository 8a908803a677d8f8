import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { text } from "node:stream/consumers";
import { onTestFinished } from "vitest";

/** Characters that terminals obey or do not show, and a line break that would begin a forged line. */
const FORBIDDEN_CODES = [
  ...Array.from({ length: 32 }, (_, code) => code),
  ...Array.from({ length: 33 }, (_, n) => 0x7f + n),
  0xad,
  0x061c,
  0x115f,
  0x180e,
  ...Array.from({ length: 5 }, (_, n) => 0x200b + n),
  ...Array.from({ length: 7 }, (_, n) => 0x2028 + n),
  ...Array.from({ length: 16 }, (_, n) => 0x2060 + n),
  0x3164,
  0xfe0f,
  0xfeff,
  0xfff9,
  0xe0001,
  0xe0041,
];
export const HOSTILE = `EVIL\u001b[2J\u001b]0;owned\u0007\u009b31m${String.fromCodePoint(...FORBIDDEN_CODES)}\nFORGED LINE\r\nFORGED LINE`;

export const FORBIDDEN = /(?!\n)[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/u;

/** Fields with a fixed format: ids, times, enumerations, links. */
const STRUCTURE =
  /(^|_)(id|at|until|status|priority|abilities|permissions)$|^(type|links|path|meta|time|first|last|next|prev)$/;

export function poisoned(value: unknown, key = ""): unknown {
  if (typeof value === "string") return STRUCTURE.test(key) ? value : `${value}${HOSTILE}`;
  if (Array.isArray(value)) return value.map((each) => poisoned(each, key));
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, each]) => [
      name,
      STRUCTURE.test(name) && name !== "type" ? each : poisoned(each, name),
    ]),
  );
}

/** A service in which every text is hostile. It rejects requests whose path contains `refusing`. */
export async function poisoningProxy(serviceUrl: string, refusing: RegExp | null): Promise<string> {
  const server = createServer((request, response) => {
    void forwardRequest(request).then(({ status, headers, body }) => {
      response.writeHead(status, headers).end(body);
    });
  });

  async function forwardRequest(request: IncomingMessage) {
    const body = await text(request);
    if (refusing?.test(request.url ?? "")) {
      const error = { status: 422, message: `Never${HOSTILE}` };
      return {
        status: 422,
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ errors: [error] }),
      };
    }
    const { authorization = "", accept = "" } = request.headers;
    const reply = await fetch(new URL(request.url ?? "/", serviceUrl), {
      method: request.method ?? "GET",
      headers: { authorization, accept, "content-type": "application/json" },
      ...(body === "" ? {} : { body }),
    });
    return {
      status: reply.status,
      headers: { "content-type": "application/json", date: new Date().toUTCString() },
      body: JSON.stringify(poisoned(await reply.json())),
    };
  }

  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => server.closeAllConnections());
  onTestFinished(() => void server.close());
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}
