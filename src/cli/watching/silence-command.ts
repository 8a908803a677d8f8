import { type Command, InvalidArgumentError } from "commander";
import type { Config } from "../../app/config/config.ts";
import { ConfigError } from "../../core/errors/errors.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import { parseDuration } from "../../core/values/duration.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import {
  addSilence,
  buildSilence,
  describeSilencedAlarms,
  endSilence,
  getSilences,
  shortenSilence,
} from "../../engine/silence/alarm-silences.ts";
import type { Store } from "../../engine/store/store.ts";
import { type CliContext, parseInteger, parseIsoTime } from "../shell/command-context.ts";
import { changeSourceStores } from "../shell/open-worker-state.ts";
import { refuseUnknownIds, refuseUnknownPriorities, refuseUnknownSources } from "../shell/refuse-unknown-ids.ts";
import { useCommandStore } from "./outbox-and-sink-commands.ts";

interface SilenceOptions {
  readonly source?: string;
  readonly site?: number;
  readonly priority?: readonly string[];
  readonly name?: string;
  readonly alarm?: string;
  readonly all?: boolean;
  readonly from?: number;
  readonly for?: number;
  readonly to?: number;
  readonly reason: string;
}

export function defineCommand(silenceCommand: Command, context: CliContext): void {
  silenceCommand
    .addHelpText(
      "after",
      '\nExamples:\n  plenum silence\n  plenum silence add --site 3 --for 4h --reason "The boiler is exchanged"\n  plenum silence end 3f9a1c07',
    )
    .action(() => useCommandStore(context, true, (store) => listSilences(context, store)));

  silenceCommand
    .command("add")
    .description("add one, now or in the future; an alarm has to match every given option")
    .option("--source <name>", "only alarms of this source")
    .option("--site <id>", "only alarms of this site", parseInteger)
    .option("--priority <letters>", "only alarms of these priorities, such as B,C", parseAlarmPriorities)
    .option("--name <pattern>", "only alarms of this name; * is any text, ? is one character")
    .option("--alarm <id>", "only this alarm")
    .option("--all", "every alarm")
    .option("--from <time>", "beginning, ISO 8601; now when left out", parseIsoTime)
    .option("--for <duration>", "how long, such as 90m or 2d", parseSilenceDuration)
    .option("--to <time>", "end, ISO 8601, in place of --for", parseIsoTime)
    .requiredOption("--reason <text>", "why, shown to people who look for the alarm")
    .action((options: SilenceOptions) =>
      useCommandStore(context, false, (store, config) => storeSilence(context, config, store, options)),
    );

  silenceCommand
    .command("end")
    .description("end one early; people are then notified of alarms that are still active")
    .argument("<id>", "id that `plenum silence` shows")
    .action(async (id: string) => {
      if (!(await endSilenceEverywhere(await context.acceptedConfig(), id, isoUtc(systemClock.now()))))
        throw new ConfigError(`There is no silence ${id}; \`plenum silence\` shows those that there are.`);
      context.terminal().print({ ended: id }, [`The silence ${id} is over.`]);
    });
}

/** Ends a silence. In a fleet, ends each source's copy; the member that polls the source emits the end event. */
function endSilenceEverywhere(config: Config, id: string, endTime: string): Promise<boolean> {
  const endSilenceInStore = config.state.postgres === undefined ? endSilence : shortenSilence;
  return changeSourceStores(config, async (stores) => {
    const silenceEndResults = await Promise.all(stores.map((store) => endSilenceInStore(store, id, endTime, "cli")));
    return silenceEndResults.includes(true);
  });
}

async function storeSilence(context: CliContext, config: Config, store: Store, options: SilenceOptions): Promise<void> {
  const { alarm, all, name, priority, site, source } = options;
  if (all !== true && [alarm, name, priority, site, source].every((filterOption) => filterOption === undefined))
    throw new ConfigError("That would silence every alarm of every building.", {
      hint: "Say which with --source, --site, --priority, --name or --alarm; or --all, if it is meant.",
    });
  const nowMs = systemClock.now();
  const { from: fromMs = nowMs } = options;
  if ((options.for === undefined) === (options.to === undefined))
    throw new ConfigError("Say how long, with either --for or --to.");
  const toMs = options.to ?? fromMs + (options.for ?? 0);
  refuseUnknownSources(config, source === undefined ? [] : [source]);
  const sources = source === undefined ? Object.keys(config.sources) : [source];
  // A silence may match alarms that do not exist yet, but a site id or alarm id in it must be known.
  await refuseUnknownIds(store, sources, "site", site === undefined ? [] : [`${site}`]);
  await refuseUnknownIds(store, sources, "alarm", alarm === undefined ? [] : [alarm]);
  await refuseUnknownPriorities(store, sources, priority ?? []);
  const requestedSilence = {
    ...{ source: source ?? null, site: site ?? null, name: name ?? null, alarm: alarm ?? null },
    ...{ priorities: priority ?? null, fromMs, toMs, reason: options.reason, madeBy: "cli" },
  };
  const silence = buildSilence(requestedSilence, nowMs);
  await addSilence(store, silence);
  const silenceLine = `Silence ${silence.id} until ${silence.to}: ${describeSilencedAlarms(silence)}. ${silence.reason}`;
  context.terminal().print(silence, [silenceLine]);
}

async function listSilences(context: CliContext, store: Store): Promise<void> {
  const activeSilences = (await getSilences(store)).filter(({ endedBy }) => endedBy === undefined);
  context.terminal().printRows(activeSilences, {
    id: "id",
    from: "from",
    to: "to",
    alarms: describeSilencedAlarms,
    reason: "reason",
    by: "madeBy",
  });
}

function parseAlarmPriorities(text: string): readonly string[] {
  const priorityLetters = text.split(",").map((letter) => letter.trim());
  if (priorityLetters.some((letter) => !/^[A-Z]$/.test(letter)))
    throw new InvalidArgumentError("Write priorities as capital letters with commas between, such as B,C.");
  return priorityLetters;
}

function parseSilenceDuration(text: string): number {
  const durationMs = parseDuration(text);
  if (durationMs === null || durationMs < 60_000)
    throw new InvalidArgumentError("Write a duration of a minute or more, such as 90m.");
  return durationMs;
}
