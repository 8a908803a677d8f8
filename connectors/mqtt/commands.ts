import type { IPublishPacket } from "mqtt";
import type { AcceptCommand, CommandMessage, CommandSource, ConnectorContext } from "../../src/core/connector.ts";
import { buildClientId } from "./client-options.ts";
import type { MqttConfig } from "./config.ts";
import { createConnection } from "./connection.ts";
import { createTopics, type Topics } from "./topics.ts";

/** Receives commands without an MQTT session, so commands sent while Plenum is offline are lost on purpose. */
export function createMqttCommands(config: MqttConfig, context: ConnectorContext): CommandSource {
  const topics = createTopics(config.prefix, config.topic, context.assignment?.source);
  let acceptCommand: AcceptCommand | null = null;

  const connection = createConnection(config, context, {
    clientId: `${buildClientId(config, context)}-cmd`,
    statusTopic: topics.commandStatus,
    prepare: (link) => link.subscribe(topics.commandFilters),
    async onMessage(packet) {
      const commandMessage = parseCommandMessage(packet, topics, context);
      if (commandMessage === null || acceptCommand === null) return;
      try {
        await acceptCommand(commandMessage);
      } catch (error) {
        context.log.error({ err: error }, "a command could not be taken and is not acknowledged");
        throw error;
      }
    },
  });

  return {
    async open(accept, signal) {
      if (!config.commands.enabled) return;
      acceptCommand = accept;
      try {
        await connection.open(signal);
      } catch (error) {
        signal.throwIfAborted();
        context.log.error({ err: error }, "commands cannot be heard yet");
        connection.reconnectInBackground();
      }
    },
    close: () => connection.close(),
  };
}

function parseCommandMessage(
  packet: IPublishPacket,
  topics: Topics,
  { clock, name }: ConnectorContext,
): CommandMessage | null {
  const commandTarget = topics.parseCommand(packet.topic);
  // An empty message is no command: such a message only deletes a retained message.
  if (commandTarget === null || packet.payload.length === 0) return null;
  const { properties = {} } = packet;
  return {
    via: name,
    topic: packet.topic,
    ...commandTarget,
    payload: typeof packet.payload === "string" ? Buffer.from(packet.payload) : packet.payload,
    retained: packet.retain,
    duplicate: packet.dup,
    expirySeconds: properties.messageExpiryInterval ?? null,
    replyTo: properties.responseTopic ?? null,
    correlation: properties.correlationData?.toString("base64") ?? null,
    // A user property may occur several times; the first value counts.
    properties: Object.fromEntries(
      Object.entries(properties.userProperties ?? {}).map(([key, value]) => [key, [value].flat()[0] ?? ""]),
    ),
    receivedAtMs: clock.now(),
  };
}
