import type { Command } from "commander";
import { ConfigError } from "../../core/errors/errors.ts";
import { globMatches } from "../../core/values/glob.ts";
import { AUDIT_LOG, type AuditRecord } from "../../engine/commands/audit/audit.ts";
import type { LogRecord, Store } from "../../engine/store/store.ts";
import { type CliContext, choose } from "../shell/context.ts";
import { refuseUnknownSources } from "../shell/known-things.ts";
import { lookAtState } from "../shell/look-at-state.ts";
import { logOptions, several } from "../shell/past-options.ts";

interface ShowOptions {
  readonly last: number;
  readonly since?: string;
  readonly command?: readonly string[];
  readonly tag?: readonly string[];
  readonly source?: readonly string[];
  readonly kind?: readonly string[];
}

type Found = LogRecord<AuditRecord>;

/** The records of the audit log, with the filters that `plenum events` has. */
export function showCommand(show: Command, context: CliContext): void {
  show
    .description("the records, the latest last, with filters")
    .option(
      "--kind <pattern>",
      "only such steps, such as accepted or restore-*; may be given several times",
      several,
    )
    .option("--command <id>", "only those of this command", several)
    .option("--source <name>", "only those about a tag of this source", several)
    .option("--tag <id>", "only those about this tag", several);
  logOptions(show)
    .addHelpText(
      "after",
      "\nExamples:\n  plenum audit show --command set-7\n  plenum audit show --since 7d --tag 10001 --kind '*rejected*'",
    )
    .action(async (options: ShowOptions) => {
      const terminal = context.terminal();
      const config = context.config();
      refuseUnknownSources(config, options.source ?? []);
      // Each source of a fleet has a log of its own.
      const only = config.state.postgres === undefined ? undefined : choose(config, options.source?.[0])[0];
      await lookAtState({ config, source: only }, async (store) => {
        const found = await wanted(store, options);
        const rows = found.map(({ sequence, body }) => ({ sequence, ...body }));
        if (rows.length === 0 && !terminal.json) {
          terminal.say("No record fits.");
          return;
        }
        terminal.object(
          rows,
          rows.map(({ sequence, at, step, commandId, detail }) =>
            [sequence, at, step, commandId, JSON.stringify(detail)].filter((text) => text !== "").join("  "),
          ),
        );
      });
    });
}

const PAGE = 1_000;

/**
 * The records that fit, the latest last. Throws ConfigError for a command, a tag or a step of which the log has no
 * record at all, by its name.
 */
async function wanted(store: Store, options: ShowOptions): Promise<readonly Found[]> {
  const { since, command, tag, source, kind } = options;
  const isFiltered = [since, command, tag, source, kind].some((part) => part !== undefined);
  const about = reader(options);
  const found: Found[] = [];
  // Sequences rise by one, so that the last ones of all are known without a look at those before.
  const end = (await store.lastRecord(AUDIT_LOG))?.sequence ?? 0;
  for (let after = isFiltered ? 0 : Math.max(0, end - options.last); ; ) {
    const page = await store.records<AuditRecord>(AUDIT_LOG, after, PAGE);
    const last = page.at(-1);
    if (last === undefined) break;
    after = last.sequence;
    for (const record of page) if (about.fits(record.body)) found.push(record);
    if (since === undefined) found.splice(0, found.length - options.last);
  }
  about.refuseUnknown();
  return found;
}

/** Goes through the log from its beginning: which tag a command is about is said by its first record alone. */
function reader({ since, command = [], tag = [], source = [], kind = [] }: ShowOptions) {
  const accepted = new Map<string, About>();
  const commands = new Set<string>();
  const tags = new Set<string>();
  const steps = new Set<string>();
  const sinceMs = since === undefined ? null : Date.parse(since);
  const none = (what: string, hint?: string) =>
    new ConfigError(`The audit log has no record ${what}.`, hint === undefined ? {} : { hint });

  return {
    fits({ at, commandId, step, detail }: AuditRecord): boolean {
      const own = aboutOf(detail);
      if (step === "accepted") accepted.set(commandId, own);
      const tagId = own.tagId ?? accepted.get(commandId)?.tagId ?? null;
      const of = own.source ?? accepted.get(commandId)?.source ?? null;
      commands.add(commandId);
      steps.add(step);
      if (tagId !== null) tags.add(tagId);
      return (
        (sinceMs === null || Date.parse(at) >= sinceMs) &&
        (command.length === 0 || command.includes(commandId)) &&
        (tag.length === 0 || (tagId !== null && tag.includes(tagId))) &&
        (source.length === 0 || (of !== null && source.includes(of))) &&
        (kind.length === 0 || kind.some((pattern) => globMatches(pattern, step)))
      );
    },
    refuseUnknown(): void {
      const unknown = command.find((id) => !commands.has(id));
      if (unknown !== undefined) throw none(`of a command ${unknown}`);
      const tagId = tag.find((id) => !tags.has(id));
      if (tagId !== undefined) throw none(`about a tag ${tagId}`);
      const pattern = kind.find((each) => ![...steps].some((step) => globMatches(each, step)));
      if (pattern === undefined) return;
      const all = [...steps].toSorted().join(", ");
      throw none(`of a step ${pattern}`, steps.size === 0 ? "It is empty." : `Its steps are ${all}.`);
    },
  };
}

interface About {
  readonly tagId: string | null;
  readonly source: string | null;
}

function aboutOf({ tagId, source }: AuditRecord["detail"]): About {
  return {
    tagId: typeof tagId === "string" ? tagId : null,
    source: typeof source === "string" ? source : null,
  };
}
