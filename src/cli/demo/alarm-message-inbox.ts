import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import type { Server } from "node:http";
import type { AddressInfo } from "node:net";
import { createAdaptorServer } from "@hono/node-server";
import { type Context, Hono } from "hono";
import { bodyLimit } from "hono/body-limit";
import { z } from "zod";
import { securityHeaders } from "../../ui/status/access-control.ts";

/** Chat channel of the demo for alarm messages, in memory. It has no access control, so it listens on loopback only. */
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

const INBOX_PAGE_FILES: readonly (readonly [path: string, file: string, type: string])[] = [
  ["/", "./page/inbox.html", "text/html; charset=utf-8"],
  ["/inbox.mjs", "./page/inbox.mjs", "text/javascript; charset=utf-8"],
  ["/favicon.svg", "../../ui/status/page/favicon.svg", "image/svg+xml"],
  ["/colours.css", "../../ui/status/page/colours.css", "text/css; charset=utf-8"],
  ["/inbox.css", "./page/inbox.css", "text/css; charset=utf-8"],
];

export async function startMessageInbox(options: { readonly port?: number } = {}) {
  const messageStore = createMessageStore();
  const server = createAdaptorServer({ fetch: inboxRoutes(messageStore).fetch }) as Server;
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

function inboxRoutes(messageStore: MessageStore) {
  const app = new Hono<{ Variables: { postedMessage: PostedMessage } }>();
  const replyNotFound = (context: Context) => context.json({ message: "There is nothing here." }, 404);
  app.notFound(replyNotFound);
  app.onError((_error, context) => context.json({ message: "The inbox failed." }, 500));
  app.use(securityHeaders);
  app.use(async (context, next) => {
    // Reject other host names, so that a website cannot read the messages by DNS rebinding.
    const isLocalName = /^(127\.0\.0\.1|localhost)(:\d+)?$/.test(context.req.header("host") ?? "");
    return isLocalName ? next() : context.json({ message: "Unknown host name." }, 403);
  });
  app.get("/messages", (context) => context.json(messageStore.messages()));
  for (const [path, file, type] of INBOX_PAGE_FILES)
    app.get(path, (context) =>
      context.body(readFileSync(new URL(file, import.meta.url), "utf8"), 200, { "content-type": type }),
    );
  app.get("*", replyNotFound);

  app.use(async (context, next) => {
    // A browser sends JSON to another origin only after a CORS preflight, which the inbox does not allow.
    const isJson = /^application\/json\b/.test(context.req.header("content-type") ?? "");
    return isJson ? next() : context.json({ message: "Only JSON is taken." }, 415);
  });
  const replyTooLong = (context: Context) => context.json({ message: "That is too long for a message." }, 413);
  app.use(bodyLimit({ maxSize: MAX_BODY_BYTES, onError: replyTooLong }));
  app.use(async (context, next) => {
    const { data } = PostedMessage.safeParse(await context.req.json().catch(() => null));
    if (data === undefined) return context.json({ message: "That is no message." }, 400);
    context.set("postedMessage", data);
    return next();
  });
  app.post("/messages", (context) => {
    const { message, isNew } = messageStore.post(context.get("postedMessage"));
    return context.json({ id: message.id }, isNew ? 201 : 200);
  });
  const editMessage = (context: Context, id: string, isClosed: boolean) => {
    const message = messageStore.edit(id, context.get("postedMessage"), isClosed);
    return message === undefined
      ? context.json({ message: "There is no such message." }, 404)
      : context.json({ id: message.id });
  };
  app.patch("/messages/:id", (context) => editMessage(context, context.req.param("id"), false));
  app.post("/messages/:id/close", (context) => editMessage(context, context.req.param("id"), true));
  return app;
}
