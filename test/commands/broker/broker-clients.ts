import { connectAsync } from "mqtt";
import type { CommandResult } from "#src/core/model/command-event-data.ts";
import { type RealServer, startMosquitto } from "../../real-servers.ts";
import { CLIENT_ID } from "./building.ts";

export function startBroker(port: number, folder: string): Promise<RealServer> {
  return startMosquitto({
    port,
    lines: () => [
      `listener ${port} 127.0.0.1`,
      "allow_anonymous true",
      "persistence true",
      `persistence_location ${folder}/`,
      "max_queued_messages 0",
    ],
  });
}

export async function leavePersistentSession(url: string): Promise<void> {
  const client = await connectAsync(url, {
    clientId: `${CLIENT_ID}-cmd`,
    protocolVersion: 5,
    clean: false,
    reconnectPeriod: 0,
    properties: { sessionExpiryInterval: 3600 },
  });
  await client.subscribeAsync("plenum/cmd/#", { qos: 1 });
  await client.endAsync();
}

export async function listenForResults(url: string) {
  const outcomes = new Map<string, string>();
  const client = await connectAsync(url, { clientId: "listener", protocolVersion: 5, reconnectPeriod: 200 });
  client.on("error", () => undefined);
  client.on("message", (_topic, payload) => {
    const { commandId, outcome } = JSON.parse(payload.toString()) as CommandResult;
    outcomes.set(commandId, outcome);
  });
  await client.subscribeAsync("plenum/+/+/tag/+/result", { qos: 1 });
  return { outcomes, leave: () => client.endAsync(true) };
}
