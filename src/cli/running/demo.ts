import { resolve } from "node:path";
import { setFlagsFromString } from "node:v8";
import type { Command } from "commander";
import { sentence } from "../../core/errors/errors.ts";
import type { Event } from "../../core/model/event.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import { loop, within } from "../../core/runtime/waiting.ts";
import { called } from "../shell/called.ts";
import type { CliContext } from "../shell/context.ts";

/** Values come by the hundred; the demo tells a line about them now and then, and every other fact at once. */
const TELL_EVERY_MS = 5_000;

export function define(command: Command, context: CliContext): void {
  command
    .option("--folder <path>", "where the demo keeps its state and its events", "plenum-demo")
    .option("--fleet <members>", "so many members, on a PostgreSQL that is installed here; keeps nothing")
    .addHelpText("after", "\nExamples:\n  plenum demo --folder /tmp/plenum-demo\n  plenum demo --fleet 3")
    .action(async (options: { readonly folder: string; readonly fleet?: string }) => {
      const { say } = context.terminal();
      if (options.fleet !== undefined) {
        const { membersIn, runFleetDemo } = await import("./demo-fleet.ts");
        await runFleetDemo(membersIn(options.fleet), context);
        return;
      }
      say("Starting the simulated service, an MQTT broker and the worker …");
      // Somebody only looks, beside all else that they do: 15 MB less count for more than a third of the little work.
      setFlagsFromString("--optimize-for-size");
      // Loaded when asked for: no other command needs the simulator and the broker in memory.
      const { startDemo } = await import("../demo/demo.ts");
      const demo = await startDemo({ folder: resolve(options.folder) });
      const broker = new URL(demo.brokerUrl);
      const plenum = called();
      say(
        "",
        demo.continued
          ? "  Going on where the last demo stopped."
          : "  Real building readings are being replayed, two minutes in every second.",
        "",
        `  status page   ${demo.statusUrl}`,
        `  inbox         ${demo.inboxUrl}  (stands for a chat channel: an alarm appears, changes and closes there)`,
        `  values        mosquitto_sub -h ${broker.hostname} -p ${broker.port} -t 'plenum/+/+/tag/+/value' -v`,
        `  alarms        mosquitto_sub -h ${broker.hostname} -p ${broker.port} -t 'plenum/+/+/alarm/+/state' -v`,
        `  all events    tail -f ${demo.folder}/events/*.jsonl`,
        `  write         mosquitto_pub -h ${broker.hostname} -p ${broker.port} -q 1 -t plenum/cmd/demo/10169/set -m 75`,
        `  commands      ${plenum} tags --demo · ${plenum} status --demo · ${plenum} explain 10169 --demo  (any of them)`,
        `  the service   ${demo.serviceUrl}  (the simulator; 20 requests a minute, as the real one)`,
        "",
        "  Ctrl-C ends it; the next start goes on from there.",
        "",
      );
      await tell(demo.worker.store.outbox, say, context.signal);
      say("Stopping …");
      const begin = performance.now();
      await demo.stop();
      say(`Stopped cleanly in ${((performance.now() - begin) / 1000).toFixed(1)} s.`);
    });
}

type Log = {
  latest(limit: number): Promise<readonly { readonly position: number; readonly event: Event }[]>;
};

async function tell(
  outbox: Log & { changed(signal: AbortSignal): Promise<void> },
  say: (text: string) => void,
  signal: AbortSignal,
) {
  let told = (await outbox.latest(1))[0]?.position ?? 0;
  let values = 0;
  let lastTold = performance.now();
  async function turn(): Promise<number> {
    const heard = new AbortController();
    await within(systemClock, TELL_EVERY_MS, outbox.changed(AbortSignal.any([heard.signal, signal])));
    heard.abort();
    const fresh = (await outbox.latest(500)).filter(({ position }) => position > told).reverse();
    told = fresh.at(-1)?.position ?? told;
    values += fresh.filter(({ event }) => event.type === "tag-value").length;
    for (const { event } of fresh) {
      const line = lineOf(event);
      if (line !== null) say(line);
    }
    if (values > 0 && performance.now() - lastTold > TELL_EVERY_MS) {
      say(`${time()}  ${values} values read`);
      values = 0;
      lastTold = performance.now();
    }
    return 0;
  }
  await loop({ clock: systemClock, signal, turn, fault: (error) => say(sentence(error)) });
}

/** What is worth a line: alarms, gateways, commands and trouble, not the first inventory. */
function lineOf(event: Event): string | null {
  if (event.type.startsWith("alarm-")) {
    const { alarm } = (event as Event<"alarm-raised">).data;
    return `${time()}  ${event.type.padEnd(18)} ${alarm.trigger.priority}  ${alarm.trigger.displayName} · ${alarm.site.displayName}`;
  }
  if (event.type === "command-result") {
    const { tagId, outcome, message } = (event as Event<"command-result">).data;
    return `${time()}  command-result     ${tagId ?? ""} ${outcome}: ${message}`;
  }
  if (event.type === "command-not-restored") {
    const { tagId, message } = (event as Event<"command-not-restored">).data;
    return `${time()}  ${event.type} ${tagId}: ${message}`;
  }
  if (/^(gateway-o|source-|token-|delivery-)/.test(event.type))
    return `${time()}  ${event.type} ${event.subject}`;
  return null;
}

function time(): string {
  return new Date().toISOString().slice(11, 19);
}
