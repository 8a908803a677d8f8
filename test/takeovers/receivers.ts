import { createHash } from "node:crypto";
import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { connectAsync } from "mqtt";
import { childOptions, serve } from "./child.ts";
import type { Fact, ReceivedEvent } from "./evidence.ts";

const { broker, prefix } = childOptions<{ readonly broker: string; readonly prefix: string }>();
const received: ReceivedEvent[] = [];

const server = createServer((request, response) => {
  bodyOf(request).then(
    (body) => {
      take("webhook", null, body);
      response.writeHead(204).end();
    },
    () => response.destroy(),
  );
});
// With the 5 s of Node.js, many requests would meet a closing connection.
server.keepAliveTimeout = 75_000;
await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));

const client = await connectAsync(broker, { clientId: "far-end", protocolVersion: 5, reconnectPeriod: 200 });
client.on("message", (topic, payload, { properties }) => {
  const id = properties?.userProperties?.["plenum-event-id"];
  if (typeof id === "string") take("mqtt", { topic, id }, payload.toString());
});
await client.subscribeAsync(`${prefix}/#`, { qos: 1 });

interface CloudEvent {
  readonly id: string;
  readonly source: string;
  readonly type: string;
  readonly subject: string;
  readonly data: {
    readonly alarm?: { readonly id: string; readonly triggeredAt: string };
    readonly tag?: { readonly id: string };
    readonly value?: number | boolean | null;
    readonly commandId?: string;
    readonly outcome?: string;
    readonly reason?: string;
  };
}

interface State {
  readonly tag?: string;
  readonly value?: number | null;
}

function take(
  end: ReceivedEvent["end"],
  message: { readonly topic: string; readonly id: string } | null,
  body: string,
): void {
  const content = body === "" ? {} : (JSON.parse(body) as Partial<CloudEvent> & State);
  const event = "specversion" in content ? (content as unknown as CloudEvent) : null;
  const isValue = message?.topic.endsWith("/value") === true;
  const [, levelOfSource = ""] = (message?.topic ?? "").split("/");
  received.push({
    end,
    atMs: Date.now(),
    id: message?.id ?? event?.id ?? "",
    key: message?.topic ?? `${event?.source} ${event?.subject}`,
    source: event === null ? levelOfSource : event.source.replace("/sources/", ""),
    type: event?.type.replace(/^.*\./, "") ?? (isValue ? "tag-value" : "state"),
    digest: createHash("sha256").update(body).digest("base64url").slice(0, 16),
    fact: event !== null ? factOf(event) : isValue ? stateOf(content) : null,
  });
}

function stateOf({ tag = "", value = null }: State): Fact {
  return { of: "value", tagId: tag, value };
}

function factOf({ data }: CloudEvent): Fact | null {
  const { alarm, commandId, tag, value } = data;
  if (alarm !== undefined) {
    const triggeredAtMs = Math.floor(Date.parse(alarm.triggeredAt) / 1_000) * 1_000;
    return { of: "alarm", alarmId: alarm.id, triggeredAtMs };
  }
  if (commandId !== undefined)
    return { of: "command", commandId, outcome: data.outcome ?? null, reason: data.reason ?? null };
  if (tag !== undefined && value !== undefined) return { of: "value", tagId: tag.id, value };
  return null;
}

async function bodyOf(request: IncomingMessage): Promise<string> {
  const pieces: Buffer[] = [];
  for await (const piece of request) pieces.push(piece);
  return Buffer.concat(pieces).toString();
}

serve({
  webhook: () => `http://127.0.0.1:${(server.address() as AddressInfo).port}/`,
  openCommands() {
    const open = new Set<string>();
    const ended = new Set<string>();
    for (const { fact } of received) {
      if (fact?.of !== "command") continue;
      if (fact.outcome !== "duplicate") (fact.outcome === null ? open : ended).add(fact.commandId);
    }
    return [...open].filter((id) => !ended.has(id));
  },
  record: () => received,
});
