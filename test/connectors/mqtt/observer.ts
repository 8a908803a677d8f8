import { connectAsync, type IClientOptions, type IClientPublishOptions, type IPublishPacket } from "mqtt";
import { onTestFinished } from "vitest";

export type Observer = Awaited<ReturnType<typeof observe>>;

export interface Heard {
  readonly topic: string;
  readonly text: string;
  readonly json: Record<string, unknown>;
  readonly retained: boolean;
  readonly packet: IPublishPacket;
}

export async function observe(url: string, filters: string | string[] = "#", options: IClientOptions = {}) {
  const client = await connectAsync(url, { protocolVersion: 5, reconnectPeriod: 0, ...options });
  const heard: Heard[] = [];
  const waiting = new Set<() => void>();
  client.on("message", (topic, payload, packet) => {
    const text = payload.toString();
    heard.push({ topic, text, json: objectOf(text), retained: packet.retain, packet });
    for (const look of waiting) look();
  });
  if (filters.length > 0) await client.subscribeAsync(filters, { qos: 1 });
  return {
    heard: heard as readonly Heard[],
    until(matches: (message: Heard) => boolean, withinMs = 30_000) {
      return new Promise<Heard>((resolve, reject) => {
        const settle = () => {
          clearTimeout(timer);
          waiting.delete(look);
        };
        const look = () => {
          const found = heard.find(matches);
          if (found === undefined) return;
          settle();
          resolve(found);
        };
        const timer = setTimeout(() => {
          settle();
          reject(new Error(`not heard within ${withinMs} ms; topics: ${heard.map((h) => h.topic).join(" ")}`));
        }, withinMs);
        waiting.add(look);
        look();
      });
    },
    publish: (topic: string, payload: string, publishOptions: IClientPublishOptions = {}) =>
      client.publishAsync(topic, payload, { qos: 1, ...publishOptions }),
    leave: () => client.endAsync(true),
  };
}

export async function observeInTest(...args: Parameters<typeof observe>): Promise<Observer> {
  const observer = await observe(...args);
  onTestFinished(() => observer.leave());
  return observer;
}

function objectOf(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? { ...value } : {};
  } catch {
    return {};
  }
}
