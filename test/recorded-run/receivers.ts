import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { text } from "node:stream/consumers";
import { connectAsync } from "mqtt";
import { Webhook } from "standardwebhooks";

export interface ArrivedEvent {
  readonly id: string;
  readonly type: string;
  readonly subject: string;
  readonly time: string;
  // biome-ignore lint/suspicious/noExplicitAny: what arrives is judged by the test, not by our own types.
  readonly data: any;
}

/** A subscriber with a session that the broker keeps, so that it misses nothing itself. */
export async function receiveMqtt(url: string) {
  const client = await connectAsync(url, { protocolVersion: 5, clientId: "receiver", clean: true });
  const arrived: ArrivedEvent[] = [];
  const messages: { topic: string; payload: Record<string, unknown> }[] = [];
  client.on("message", (topic, body) => {
    if (body.length === 0) return;
    const payload = JSON.parse(body.toString());
    if (topic.includes("/event/")) arrived.push(payload);
    else messages.push({ topic, payload });
  });
  await client.subscribeAsync(["plenum/+/+/event/#", "plenum/+/+/tag/#", "plenum/status"], { qos: 1 });
  return {
    arrived,
    messages,
    publish: (topic: string, payload: string) => client.publishAsync(topic, payload, { qos: 1 }),
    close: () => client.endAsync(true),
  };
}

export async function receiveWebhooks(secret: string) {
  const webhook = new Webhook(secret);
  const arrived: ArrivedEvent[] = [];
  const refused: string[] = [];
  const server = createServer((request, response) => {
    void text(request).then((body) => {
      try {
        webhook.verify(body, request.headers as Record<string, string>);
        arrived.push(JSON.parse(body));
        response.writeHead(204).end();
      } catch (error) {
        refused.push(String(error));
        response.writeHead(401).end();
      }
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return {
    arrived,
    refused,
    url: `http://127.0.0.1:${port}/hook`,
    close: () =>
      new Promise<void>((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}
