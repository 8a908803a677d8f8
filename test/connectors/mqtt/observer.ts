import { connectAsync, type IClientOptions, type IClientPublishOptions, type IPublishPacket } from "mqtt";
import { expect, onTestFinished } from "vitest";
import { findSchemaProblem } from "./message-schema.ts";

/** Long, because it only ends a test that hangs. */
const MESSAGE_TIMEOUT_MS = 180_000;

export type Observer = Awaited<ReturnType<typeof observe>>;

export interface HeardMessage {
  readonly topic: string;
  readonly text: string;
  readonly json: Record<string, unknown>;
  readonly retained: boolean;
  readonly packet: IPublishPacket;
}

export async function observe(url: string, filters: string | string[] = "#", options: IClientOptions = {}) {
  const client = await connectAsync(url, { protocolVersion: 5, reconnectPeriod: 0, ...options });
  const heardMessages: HeardMessage[] = [];
  const schemaProblems: string[] = [];
  const pendingChecks = new Set<() => void>();
  client.on("message", (topic, payload, packet) => {
    const payloadText = payload.toString();
    heardMessages.push({ topic, text: payloadText, json: parseObject(payloadText), retained: packet.retain, packet });
    const isJsonOfPlenum = packet.properties?.contentType?.endsWith("json") === true && payloadText !== "";
    const schemaProblem = isJsonOfPlenum ? findSchemaProblem(payloadText) : null;
    if (schemaProblem !== null) schemaProblems.push(`${topic}: ${schemaProblem}`);
    for (const pendingCheck of pendingChecks) pendingCheck();
  });
  if (filters.length > 0) await client.subscribeAsync(filters, { qos: 1 });
  return {
    heard: heardMessages as readonly HeardMessage[],
    until(matches: (message: HeardMessage) => boolean) {
      return new Promise<HeardMessage>((resolve, reject) => {
        const settle = () => {
          clearTimeout(timer);
          pendingChecks.delete(checkMessages);
        };
        const checkMessages = () => {
          const foundMessage = heardMessages.find(matches);
          if (foundMessage === undefined) return;
          settle();
          resolve(foundMessage);
        };
        const timer = setTimeout(() => {
          settle();
          reject(new Error(`not heard; topics: ${heardMessages.map((h) => h.topic).join(" ")}`));
        }, MESSAGE_TIMEOUT_MS);
        pendingChecks.add(checkMessages);
        checkMessages();
      });
    },
    publish: (topic: string, payload: string, publishOptions: IClientPublishOptions = {}) =>
      client.publishAsync(topic, payload, { qos: 1, ...publishOptions }),
    async leave() {
      await client.endAsync(true);
      expect(schemaProblems, "messages that match no schema of docs/reference/mqtt.schema.json").toEqual([]);
    },
  };
}

export async function observeInTest(...args: Parameters<typeof observe>): Promise<Observer> {
  const observer = await observe(...args);
  onTestFinished(() => observer.leave());
  return observer;
}

function parseObject(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? { ...value } : {};
  } catch {
    return {};
  }
}
