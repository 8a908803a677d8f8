import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { z } from "zod";
import { PAGE_SECURITY_HEADERS } from "../../core/http/security-headers.ts";
import { valueOr } from "../../core/values/value-or.ts";

/** Chat channel of the demo, in memory. The channel has no access control, hence listens on loopback only. */
export type MessageInbox = Awaited<ReturnType<typeof startMessageInbox>>;

const PostedMessage = z.strictObject({
  key: z.string().min(1).max(100),
  title: z.string().max(5_000),
  status: z.string().max(20),
  statusText: z.string().max(200),
  priority: z.string().max(100),
  /** Each line of the text states one fact about the alarm, such as `Site: Kvarnholmen 4`. */
  text: z.string().max(50_000),
});
type PostedMessage = z.output<typeof PostedMessage>;

export interface InboxMessage extends PostedMessage {
  readonly id: string;
  readonly edits: number;
  readonly isClosed: boolean;
}

const MAX_INBOX_MESSAGES = 200;
const MAX_BODY_BYTES = 256 * 1024;

const INBOX_PAGE_FILES: Readonly<Record<string, { readonly file: string; readonly type: string }>> = {
  "/": { file: "inbox.html", type: "text/html; charset=utf-8" },
  "/inbox.mjs": { file: "inbox.mjs", type: "text/javascript; charset=utf-8" },
  "/favicon.svg": { file: "../../../ui/status/page/favicon.svg", type: "image/svg+xml" },
  "/colours.css": { file: "../../../ui/status/page/colours.css", type: "text/css; charset=utf-8" },
  "/inbox.css": { file: "inbox.css", type: "text/css; charset=utf-8" },
};

interface HttpReply {
  readonly status: number;
  readonly type: string;
  readonly body: string;
}

export async function startMessageInbox(options: { readonly port?: number } = {}) {
  const messageStore = createMessageStore();
  const server = createServer((request, response) => {
    handleRequest(messageStore, request).then(
      (reply) => sendHttpReply(response, reply),
      () => sendHttpReply(response, jsonReply(500, { message: "The inbox failed." })),
    );
  });
  server.listen(options.port ?? 0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`,
    messages: messageStore.messages,
    async close(): Promise<void> {
      if (!server.listening) return;
      const serverClosed = once(server, "close");
      server.close();
      server.closeAllConnections();
      await serverClosed;
    },
  };
}

type MessageStore = ReturnType<typeof createMessageStore>;

function createMessageStore() {
  const messages = new Map<string, InboxMessage>();

  function editMessage(id: string, postedMessage: PostedMessage, isClosed: boolean): InboxMessage | undefined {
    const existingMessage = messages.get(id);
    if (existingMessage === undefined) return undefined;
    const message = { ...postedMessage, id, edits: existingMessage.edits + 1, isClosed };
    messages.set(id, message);
    return message;
  }

  return {
    messages: (): readonly InboxMessage[] => [...messages.values()].reverse(),
    edit: editMessage,
    /** Adds a message, or edits the message with the same key. */
    post(post: PostedMessage): { readonly message: InboxMessage; readonly isNew: boolean } {
      const existingMessage = messages.values().find(({ key }) => key === post.key);
      const editedMessage = existingMessage === undefined ? undefined : editMessage(existingMessage.id, post, false);
      if (editedMessage !== undefined) return { message: editedMessage, isNew: false };
      const message = { ...post, id: randomUUID(), edits: 0, isClosed: false };
      messages.set(message.id, message);
      const [oldestId] = messages.keys();
      if (messages.size > MAX_INBOX_MESSAGES && oldestId !== undefined) messages.delete(oldestId);
      return { message, isNew: true };
    },
  };
}

async function handleRequest(messageStore: MessageStore, request: IncomingMessage): Promise<HttpReply> {
  const { method = "GET", headers } = request;
  const { pathname } = new URL(request.url ?? "/", "http://inbox.invalid");
  // DNS rebinding must not let a web page read the messages.
  if (!/^(127\.0\.0\.1|localhost)(:\d+)?$/.test(headers.host ?? "")) return errorReply(403, "Unknown host name.");
  if (method === "GET") return replyToGet(messageStore, pathname);
  // A browser sends JSON to another origin only after a CORS preflight, which the inbox does not allow.
  if (!/^application\/json\b/.test(headers["content-type"] ?? "")) return errorReply(415, "Only JSON is taken.");
  const body = await readRequestBody(request);
  if (body === null) return errorReply(413, "That is too long for a message.");
  const parsedMessage = PostedMessage.safeParse(valueOr(() => JSON.parse(body), null));
  if (!parsedMessage.success) return errorReply(400, "That is no message.");
  return replyToChange(messageStore, method, pathname, parsedMessage.data);
}

function replyToGet(messageStore: MessageStore, path: string): HttpReply {
  if (path === "/messages") return jsonReply(200, messageStore.messages());
  const pageFile = INBOX_PAGE_FILES[path];
  if (pageFile === undefined) return errorReply(404, "There is nothing here.");
  const body = readFileSync(new URL(`./page/${pageFile.file}`, import.meta.url), "utf8");
  return { status: 200, type: pageFile.type, body };
}

function replyToChange(
  messageStore: MessageStore,
  method: string,
  path: string,
  postedMessage: PostedMessage,
): HttpReply {
  if (method === "POST" && path === "/messages") {
    const { message, isNew } = messageStore.post(postedMessage);
    return jsonReply(isNew ? 201 : 200, { id: message.id });
  }
  const [, id, action] = /^\/messages\/([^/]+)(\/close)?$/.exec(path) ?? [];
  const isClosing = action !== undefined;
  if (id === undefined || method !== (isClosing ? "POST" : "PATCH")) return errorReply(404, "There is nothing here.");
  const message = messageStore.edit(id, postedMessage, isClosing);
  if (message === undefined) return errorReply(404, "There is no such message.");
  return jsonReply(200, { id: message.id });
}

const errorReply = (status: number, message: string): HttpReply => jsonReply(status, { message });

function jsonReply(status: number, value: unknown): HttpReply {
  return { status, type: "application/json; charset=utf-8", body: JSON.stringify(value) };
}

function sendHttpReply(response: ServerResponse, { status, type, body }: HttpReply): void {
  if (response.destroyed) return;
  response.writeHead(status, { ...PAGE_SECURITY_HEADERS, "cache-control": "no-store", "content-type": type }).end(body);
}

async function readRequestBody(request: IncomingMessage): Promise<string | null> {
  const bodyChunks: Buffer[] = [];
  let byteCount = 0;
  for await (const bodyChunk of request as AsyncIterable<Buffer>) {
    byteCount += bodyChunk.length;
    if (byteCount <= MAX_BODY_BYTES) bodyChunks.push(bodyChunk);
  }
  return byteCount > MAX_BODY_BYTES ? null : Buffer.concat(bodyChunks).toString();
}
