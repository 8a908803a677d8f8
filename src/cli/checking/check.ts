import type { Command } from "commander";
import type { Config } from "../../app/config/config.ts";
import { placesIn } from "../../app/config/places.ts";
import { ALLOW_WRITABLE, refuseUntrustedFile } from "../../app/config/trusted-file.ts";
import { ConfigError, Retryable } from "../../core/errors/errors.ts";
import { refuseUnverifiedTls } from "../../core/http/verified-tls.ts";
import { counted } from "../../core/values/plural.ts";
import { approvalState } from "../../engine/commands/approval/approving.ts";
import type { AllowedTag } from "../../engine/commands/config.ts";
import type { SeenBuilding } from "../../engine/sync/compare.ts";
import { readCredentials } from "../../ui/status/credentials.ts";
import type { CliContext } from "../shell/context.ts";
import { questionOf } from "../writing/approval.ts";
import { filterLines, priorityLines } from "./check-building.ts";
import { type CheckLine, trouble } from "./check-line.ts";
import { checkMachine } from "./check-machine.ts";
import { writableText } from "./check-senders.ts";
import { checkAnySink, checkSink } from "./check-sink.ts";
import { checkSource } from "./check-source.ts";
import { checkWriting } from "./check-writing.ts";

interface CheckOptions {
  readonly strict?: boolean;
  readonly ask?: boolean;
  readonly lists?: boolean;
  readonly allowWritableConfig?: boolean;
}

/**
 * Looks at everything that a run would need and changes nothing: no tag request, no event, no file in the state. The
 * one thing that leaves is a message that an MQTT broker passes on to nobody who does not ask for it.
 */
export function define(command: Command, context: CliContext): void {
  command
    .option("--strict", "take warnings for errors, as a pipeline may want it")
    .option("--ask", "list sites and tags at the service, even where the state knows them")
    .option("--no-lists", "leave out the comparison with the building, which lists its tags")
    .option(
      ALLOW_WRITABLE,
      "accept a configuration file that other users may change, as plenum run does with it",
    )
    .addHelpText(
      "after",
      "\nThe configuration is compared with the building: what selects nothing, is never reached, does not exist. Lists" +
        "\ncost nothing of the quota; 30,000 tags take two minutes where no worker has listed them." +
        "\n\nExample:\n  plenum check --config /etc/plenum/plenum.yaml --strict",
    )
    .action(async (options: CheckOptions) => {
      refuseUnverifiedTls();
      const terminal = context.terminal();
      const config = context.config();
      const lines = await terminal.progress("Checking", (update) => check(config, context, options, update));
      terminal.rows<CheckLine>(lines, [
        { title: "what", value: (line) => line.what },
        { title: "result", value: (line) => line.result },
        {
          title: "detail",
          value: ({ place, detail }) => (place === undefined ? detail : `${place} ${detail}`),
        },
      ]);
      conclude(lines, options.strict === true);
    });
}

async function check(
  config: Config,
  context: CliContext,
  { lists = true, ask = false, allowWritableConfig = false }: CheckOptions,
  update: (text: string) => void,
): Promise<readonly CheckLine[]> {
  const { signal } = context;
  const places = placesIn(context.configFile());
  const lines: CheckLine[] = [
    checkFile(context.configFile(), allowWritableConfig),
    ...(await checkMachine(config, context.configFile(), places, signal)),
    ...checkPasswords(config),
    ...(await checkApproved(config)),
  ];
  const locks = await checkWriting(config, places, signal);
  lines.push(...locks);
  const writable: AllowedTag[] = [];
  const buildings = new Map<string, Pick<SeenBuilding, "sites">>();
  for (const [name, entry] of Object.entries(config.sources)) {
    update(`Asking source ${name}`);
    const checked = await checkSource({ name, entry, config, places, lists, ask, signal, update });
    lines.push(...checked.lines);
    writable.push(
      ...(checked.writable ?? config.commands.allow.filter((tag) => (tag.source ?? name) === name)),
    );
    if (checked.sites !== null) buildings.set(name, { sites: checked.sites });
  }
  lines.push(...checkAnySink(config), ...priorityLines(config, places));
  for (const name of Object.keys(config.sinks)) {
    update(`Asking sink ${name}`);
    lines.push(...(await checkSink(name, config, signal)));
  }
  // Of a service that did not answer nothing is known, so nothing is said of its sites.
  const isKnown = buildings.size === Object.keys(config.sources).length;
  if (isKnown) lines.push(...filterLines(config, buildings, places));
  const isOpen =
    locks.length === 0 && !lines.some(({ result }) => result === "wrong" || result === "unavailable");
  if (!isOpen || writable.length === 0) return lines;
  const detail = `${counted(writable.length, "tag")} may be written: ${writableText(writable)}`;
  return [...lines, { what: "writing", result: "ok", detail }];
}

function checkFile(file: string, isWritableAllowed: boolean): CheckLine {
  const what = "configuration";
  try {
    if (!isWritableAllowed) refuseUntrustedFile(file);
    return { what, result: "ok", detail: file };
  } catch (error) {
    return trouble(what, error);
  }
}

/** Throws where something did not pass: what a person has to change before what may pass by itself. */
function conclude(lines: readonly CheckLine[], isStrict: boolean): void {
  const wrong = lines.filter(({ result }) => result === "wrong" || (isStrict && result === "warning"));
  const unavailable = lines.filter(({ result }) => result === "unavailable");
  const bad = wrong.length + unavailable.length;
  if (bad === 0) return;
  const text = `${bad} of ${lines.length} checks did not pass.`;
  throw wrong.length > 0 ? new ConfigError(text) : new Retryable(text);
}

function checkPasswords({ status }: Config): readonly CheckLine[] {
  try {
    if (readCredentials(status) === null) return [];
    return [{ what: "status", result: "ok", detail: "the passwords are there" }];
  } catch (error) {
    return [trouble("status", error)];
  }
}

/** Nothing is written before a second person has agreed, so whoever checks should learn it here. */
async function checkApproved(config: Config): Promise<readonly CheckLine[]> {
  if (!config.commands.enabled) return [];
  const what = "approval of writing";
  try {
    const question = await questionOf(config);
    if (question.config === null && question.pinned === null) return [];
    const { approvedBy, refusing } = approvalState(question);
    return refusing === null
      ? [{ what, result: "ok", detail: `approved by ${approvedBy.join(", ")}` }]
      : [{ what, result: "wrong", detail: refusing }];
  } catch (error) {
    return [trouble(what, error)];
  }
}
