import { existsSync, renameSync, writeFileSync } from "node:fs";
import type { Command } from "commander";
import { readNamesFile } from "../../app/reload/tag-names-file-watch.ts";
import { ConfigError } from "../../core/errors/errors.ts";
import type { Tag, TagNames } from "../../core/model/building.ts";
import { formatCount } from "../../core/values/plural.ts";
import { toUcumCode } from "../../core/values/ucum-code.ts";
import { compareTagIds } from "../../engine/sync/inventory/requestable-tags.ts";
import { formatNamesFile } from "../../engine/sync/inventory/tag-names-file.ts";
import { type CliContext, chooseSource } from "../shell/command-context.ts";
import { EXIT_CODE } from "../shell/exit-codes.ts";
import { readBuildingInventory } from "./building-inventory.ts";

export function defineCommand(command: Command, context: CliContext): void {
  command
    .option("--source <name>", "which source, when there are several")
    .option("--write", "write the file that sources.<name>.names states, instead of printing it")
    .addHelpText(
      "after",
      "\nEntries of the file stay as they are. Each other tag gets a line: with path and alias if its name is a Nordic component\n" +
        "code such as +b1=432.001-OE001, and with a UCUM code if its unit has one.\n\nExamples:\n  plenum names --write\n  plenum names check",
    )
    .action(async ({ source, write }: { readonly source?: string; readonly write?: true }) => {
      const { file, sourceName, tags } = await readTagsAndNamesFile(context, source);
      const knownIds = new Set(tags.map(({ id }) => id));
      const { entries, problems } = file !== null && existsSync(file) ? readNamesFile(file, knownIds) : NO_NAMES_FILE;
      const [firstProblem] = problems;
      if (firstProblem !== undefined)
        throw new ConfigError(`The names file has mistakes. ${firstProblem}`, {
          hint: "`plenum names check` lists all.",
        });
      const proposedNames = proposeNames(tags, entries);
      const listedNames = tags.map(({ id }) => [id, entries.get(id) ?? proposedNames.get(id) ?? {}] as const);
      const names = new Map([...listedNames, ...entries]);
      const pathCount = [...names.values()].filter(({ path }) => path !== undefined).length;
      const summary = `${formatCount(names.size, "tag")} of ${sourceName}, ${pathCount} with a path.`;
      if (write !== true) {
        if (context.terminal().json)
          context.terminal().printRows(
            [...names].map(([id, tagNames]) => ({ id, ...tagNames })),
            {},
          );
        else context.terminal().printText(formatNamesFile(names).trimEnd().split("\n"));
        return context.terminal().info(summary);
      }
      if (file === null) throw noNamesFileError(sourceName);
      writeFileSync(`${file}.new`, formatNamesFile(names));
      renameSync(`${file}.new`, file);
      context.terminal().info(`Wrote ${file}: ${summary}`);
    });

  command
    .command("check")
    .description("check the names file: one sentence for each mistake")
    .action(async () => {
      const { file, sourceName, tags } = await readTagsAndNamesFile(
        context,
        command.opts<{ source?: string }>().source,
      );
      if (file === null) throw noNamesFileError(sourceName);
      const { entries, problems, unknownTags } = readNamesFile(file, new Set(tags.map(({ id }) => id)));
      const mistakes = [...problems, ...unknownTags];
      const validText = `${file} has ${formatCount(entries.size, "tag")} and no mistakes.`;
      context.terminal().print(mistakes, mistakes.length === 0 ? [validText] : mistakes);
      if (mistakes.length > 0) process.exitCode = EXIT_CODE.configuration;
    });
}

const NO_NAMES_FILE: ReturnType<typeof readNamesFile> = { entries: new Map(), problems: [], unknownTags: [] };

async function readTagsAndNamesFile(context: CliContext, source: string | undefined) {
  const [sourceName, { names: file = null }] = chooseSource(context.config(), source);
  const { items } = await readBuildingInventory(context, "tag", { source: sourceName });
  return { file, sourceName, tags: items.map(({ value }) => value).toSorted((a, b) => compareTagIds(a.id, b.id)) };
}

function noNamesFileError(source: string): ConfigError {
  const hint = `Set sources.${source}.names, e.g. to names.csv in the folder of the configuration file.`;
  return new ConfigError(`The source ${source} has no names file.`, { hint });
}

/** Proposes names for each tag without an entry in the names file. Leaves out a path that several tags would have. */
function proposeNames(tags: readonly Tag[], entries: ReadonlyMap<string, TagNames>): ReadonlyMap<string, TagNames> {
  const proposals = tags
    .filter(({ id }) => !entries.has(id))
    .map(({ id, displayName, unit }) => {
      const code = splitComponentCode(displayName);
      return { id, levels: code && componentCodeLevels(code), unitCode: toUcumCode(unit) };
    });
  const pathCounts = new Map<string, number>();
  const countPath = (path: string) => pathCounts.set(path.toLowerCase(), (pathCounts.get(path.toLowerCase()) ?? 0) + 1);
  for (const { path } of entries.values()) if (path !== undefined) countPath(path);
  for (const { levels } of proposals) if (levels !== null) countPath(levels.join("/"));
  return new Map(
    proposals.map(({ id, levels, unitCode }) => {
      const path = levels?.join("/") ?? "";
      const isPathUnique = pathCounts.get(path.toLowerCase()) === 1;
      return [
        id,
        {
          ...(levels !== null && { alias: levels.join("_") }),
          ...(isPathUnique && { path }),
          ...(unitCode !== null && { unitCode }),
        },
      ] as const;
    }),
  );
}

/** Parts of a Nordic component code (NS 3457-7, TFM): `+b1=432.001-OE001_Energi`. */
export interface ComponentCode {
  /** Location after `+`, such as `b1`; null when the code states none. */
  readonly location: string | null;
  readonly system: string;
  /** Component, such as `OE001`; null for a point of the complete system, such as `320.001_Drift`. */
  readonly component: string | null;
  /** Text after `_` that names a point of the component, such as `Energi`; null when there is none. */
  readonly point: string | null;
}

const COMPONENT_CODE_PATTERN =
  /^(?:\+(?<location>[\p{L}\d._-]+)=|=)?(?<system>\d{3}\.\d{3})(?:-(?<component>[A-Z]{2,3}\d{2,4}))?(?:_(?<point>[\p{L}\d%._-]+))?$/u;

/** Splits a name that is a complete component code. Returns null for any other name instead of guessing. */
export function splitComponentCode(name: string): ComponentCode | null {
  const { location = null, system, component = null, point = null } = COMPONENT_CODE_PATTERN.exec(name)?.groups ?? {};
  if (system === undefined || (component ?? point) === null) return null;
  return { location, system, component, point };
}

/** Returns the levels of a component code from the location to the component with its point. */
export function componentCodeLevels({ location, system, component, point }: ComponentCode): readonly string[] {
  const componentAndPoint = [component, point].filter((part) => part !== null).join("_");
  return location === null ? [system, componentAndPoint] : [location, system, componentAndPoint];
}
