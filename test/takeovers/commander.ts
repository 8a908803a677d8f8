import { connectAsync } from "mqtt";
import type { SeededRandom } from "../commands/seeded-random.ts";
import type { SentCommand } from "./evidence.ts";
import type { ServicePlace } from "./services.ts";

const FIRST_VALUE = 100;

export type Commander = Awaited<ReturnType<typeof startCommander>>;

export async function startCommander(options: {
  readonly broker: string;
  readonly prefix: string;
  readonly places: readonly ServicePlace[];
  readonly random: SeededRandom;
  readonly everyMs: number;
  readonly lifeS: number;
}) {
  const { broker, prefix, places, random, everyMs, lifeS } = options;
  const client = await connectAsync(broker, { clientId: "commander", protocolVersion: 5, reconnectPeriod: 200 });
  client.on("error", () => undefined);
  const sent: SentCommand[] = [];
  const timer = setInterval(() => {
    const { source, written } = random.pick(places);
    const command = {
      id: `c${sent.length + 1}`,
      source,
      tagId: random.pick(written),
      value: FIRST_VALUE + sent.length,
      isRepeated: random.chance(0.2),
    };
    sent.push(command);
    const payload = JSON.stringify({ id: command.id, value: command.value, ttl_s: lifeS });
    const topic = `${prefix}/cmd/${source}/${command.tagId}/set`;
    client.publish(topic, payload, { qos: 1 });
    if (command.isRepeated) client.publish(topic, payload, { qos: 1 });
  }, everyMs);
  return {
    sent: sent as readonly SentCommand[],
    rest: () => clearInterval(timer),
    async close(): Promise<void> {
      clearInterval(timer);
      await client.endAsync(true);
    },
  };
}
