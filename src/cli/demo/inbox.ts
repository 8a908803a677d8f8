import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { z } from "zod";
import { PAGE_HEADERS } from "../../core/http/page-headers.ts";

/**
 * The demo's chat channel: the worker's webhook posts an alarm here, edits it and closes it, and a page shows it. It
 * remembers in memory only and lets every program of this machine in: loopback only, and never for a building.
 *
 * | Request | Answer |
 * |---|---|
 * | `POST /messages` | 201 and the id; 200 and the id of before where the key is known, so that nothing is there twice |
 * | `PATCH /messages/<id>` | 200; 404 when it is not there any more |
 * | `POST /messages/<id>/close` | the same, and the message is closed |
 * | `GET /messages` | all, the newest first |
 */
export interface Inbox {
  readonly url: string;
  /** The newest first. */
  messages(): readonly Message[];
  close(): Promise<void>;
}

/** What is posted; texts of the service, shown as they are. */
const Post = z.strictObject({
  key: z.string().min(1).max(100),
  title: z.string().max(5_000),
  status: z.string().max(20),
  statusText: z.string().max(200),
  priority: z.string().max(100),
  /** What is known of the alarm, a line each: `Site: Kvarnholmen 4`. */
  text: z.string().max(50_000),
});

export interface Message extends z.output<typeof Post> {
  readonly id: string;
  /** How often it was changed where it stands. */
  readonly edits: number;
  readonly isClosed: boolean;
}

const MOST_MESSAGES = 200;
/** In bytes; 50,000 characters of text need no more, most escapes included. */
const LARGEST_BODY = 256 * 1024;

const JSON_TYPE = "application/json; charset=utf-8";

const ASSETS: Readonly<Record<string, { readonly file: string; readonly type: string }>> = {
  "/": { file: "inbox.html", type: "text/html; charset=utf-8" },
  "/inbox.mjs": { file: "inbox.mjs", type: "text/javascript; charset=utf-8" },
  "/favicon.svg": { file: "../../../ui/status/page/favicon.svg", type: "image/svg+xml" },
  "/colours.css": { file: "../../../ui/status/page/colours.css", type: "text/css; charset=utf-8" },
  "/inbox.css": { file: "inbox.css", type: "text/css; charset=utf-8" },
};

interface Answer {
  readonly status: number;
  readonly type: string;
  readonly body: string;
}

export async function startInbox(options: { readonly port?: number } = {}): Promise<Inbox> {
  const channel = createChannel();
  const server = createServer((request, response) => {
    answer(channel, request).then(
      ({ status, type, body }) => send(response, status, type, body),
      () => send(response, 500, JSON_TYPE, json({ message: "The inbox failed." })),
    );
  });
  server.listen(options.port ?? 0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`,
    messages: () => channel.messages(),
    async close() {
      if (!server.listening) return;
      const closed = once(server, "close");
      server.close();
      server.closeAllConnections();
      await closed;
    },
  };
}

interface Channel {
  messages(): readonly Message[];
  /** The message of a post, and whether it is a new one. */
  post(post: z.output<typeof Post>): { readonly message: Message; readonly isNew: boolean };
  /** Undefined when there is no such message. */
  edit(id: string, post: z.output<typeof Post>, isClosed: boolean): Message | undefined;
}

function createChannel(): Channel {
  /** In the order in which they were posted. */
  const messages = new Map<string, Message>();

  function edit(id: string, post: z.output<typeof Post>, isClosed: boolean): Message | undefined {
    const before = messages.get(id);
    if (before === undefined) return undefined;
    const message = { ...post, id, edits: before.edits + 1, isClosed };
    messages.set(id, message);
    return message;
  }

  return {
    messages: () => [...messages.values()].reverse(),
    edit,
    post(post) {
      const before = messages.values().find(({ key }) => key === post.key);
      const again = before === undefined ? undefined : edit(before.id, post, false);
      if (again !== undefined) return { message: again, isNew: false };
      const message = { ...post, id: randomUUID(), edits: 0, isClosed: false };
      messages.set(message.id, message);
      const [oldest] = messages.keys();
      if (messages.size > MOST_MESSAGES && oldest !== undefined) messages.delete(oldest);
      return { message, isNew: true };
    },
  };
}

async function answer(channel: Channel, request: IncomingMessage): Promise<Answer> {
  const { method = "GET", headers } = request;
  const { pathname } = new URL(request.url ?? "/", "http://inbox.invalid");
  // A page from elsewhere whose name suddenly points here (DNS rebinding) learns nothing.
  if (!/^(127\.0\.0\.1|localhost)(:\d+)?$/.test(headers.host ?? "")) return told(403, "Unknown host name.");
  if (method === "GET") return shown(channel, pathname);
  // Without asking first, which nobody here answers, a page of another site cannot send this type.
  if (!/^application\/json\b/.test(headers["content-type"] ?? "")) return told(415, "Only JSON is taken.");
  const body = await bodyOf(request);
  if (body === null) return told(413, "That is too long for a message.");
  const post = Post.safeParse(parsed(body));
  if (!post.success) return told(400, "That is no message.");
  return taken(channel, method, pathname, post.data);
}

function shown(channel: Channel, path: string): Answer {
  if (path === "/messages") return { status: 200, type: JSON_TYPE, body: json(channel.messages()) };
  const asset = ASSETS[path];
  if (asset === undefined) return told(404, "There is nothing here.");
  const body = readFileSync(new URL(`./page/${asset.file}`, import.meta.url), "utf8");
  return { status: 200, type: asset.type, body };
}

function taken(channel: Channel, method: string, path: string, post: z.output<typeof Post>): Answer {
  if (method === "POST" && path === "/messages") {
    const { message, isNew } = channel.post(post);
    return { status: isNew ? 201 : 200, type: JSON_TYPE, body: json({ id: message.id }) };
  }
  const [, id, deed] = /^\/messages\/([^/]+)(\/close)?$/.exec(path) ?? [];
  const isClose = deed !== undefined;
  if (id === undefined || method !== (isClose ? "POST" : "PATCH")) return told(404, "There is nothing here.");
  const message = channel.edit(id, post, isClose);
  if (message === undefined) return told(404, "There is no such message.");
  return { status: 200, type: JSON_TYPE, body: json({ id: message.id }) };
}

function told(status: number, message: string): Answer {
  return { status, type: JSON_TYPE, body: json({ message }) };
}

function send(response: ServerResponse, status: number, type: string, body: string): void {
  if (response.destroyed) return;
  response
    .writeHead(status, { ...PAGE_HEADERS, "cache-control": "no-store", "content-type": type })
    .end(body);
}

/** Null when it is larger than a message can be. */
async function bodyOf(request: IncomingMessage): Promise<string | null> {
  const pieces: Buffer[] = [];
  let size = 0;
  for await (const piece of request as AsyncIterable<Buffer>) {
    size += piece.length;
    if (size <= LARGEST_BODY) pieces.push(piece);
  }
  return size > LARGEST_BODY ? null : Buffer.concat(pieces).toString();
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

function json(value: unknown): string {
  return JSON.stringify(value);
}
