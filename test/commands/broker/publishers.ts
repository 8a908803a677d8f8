import { connectAsync, type IClientPublishOptions, type MqttClient } from "mqtt";
import { type Message, marked } from "./messages.ts";

export async function startPublishers(url: string, listener: { readonly lastSerial: () => number; changed(): void }) {
  const options = { clean: false, reconnectPeriod: 200, keepalive: 60 };
  const modern = await connectAsync(url, {
    ...options,
    clientId: "sender-5",
    protocolVersion: 5,
    properties: { sessionExpiryInterval: 3600 },
  });
  const old = await connectAsync(url, { ...options, clientId: "sender-3", protocolVersion: 4 });
  const clients = [modern, old];
  for (const client of clients) client.on("error", () => undefined);
  const acknowledged = new Map<number, number>();
  let underWay = 0;

  async function send(client: MqttClient, message: Message, serial: number): Promise<void> {
    underWay += 1;
    try {
      await client.publishAsync(message.topic, marked(message.payload, serial), optionsOf(message, client));
      acknowledged.set(serial, listener.lastSerial());
    } catch {
      // The library gives up what it was about to send again when the connection is lost once more at that moment.
    } finally {
      underWay -= 1;
      listener.changed();
    }
  }

  return {
    acknowledged: acknowledged as ReadonlyMap<number, number>,
    underWay: () => underWay,
    publish(message: Message, serial: number): void {
      const client = message.mqtt5Properties !== null || serial % 2 === 0 ? modern : old;
      void send(client, message, serial);
    },
    async close(): Promise<void> {
      for (const client of clients) await client.endAsync(true);
    },
  };
}

function optionsOf({ retain, mqtt5Properties }: Message, client: MqttClient): IClientPublishOptions {
  if (client.options.protocolVersion !== 5 || mqtt5Properties === null) return { qos: 1, retain };
  const { userProperties, ...others } = mqtt5Properties;
  const user = userProperties === undefined ? {} : { userProperties: { ...userProperties } };
  return { qos: 1, retain, properties: { ...others, ...user } };
}
