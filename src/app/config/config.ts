import { dirname, resolve } from "node:path";
import { z } from "zod";
import { getConnector } from "../../../connectors/catalog.ts";
import { ConfigSections, findSinkConnector, type SinkConfigEntry } from "./config-sections.ts";
import { findContradictions } from "./contradictory-options.ts";

export const Config = ConfigSections.superRefine((config, context) => {
  for (const { path, message } of findContradictions(config))
    context.addIssue({ code: "custom", path: [...path], message });
});
export type Config = z.output<typeof Config>;
export type SourceConfigEntry = Config["sources"][string];

/** Makes the paths of names files absolute: they are relative to the folder of the configuration file. */
export function resolveNamesFilePaths(config: Config, configFile: string): Config {
  const sources = Object.entries(config.sources).map(([name, { names, ...entry }]) => {
    const absoluteEntry = names === undefined ? entry : { ...entry, names: resolve(dirname(configFile), names) };
    return [name, absoluteEntry] as const;
  });
  return { ...config, sources: Object.fromEntries(sources) };
}

/** Uses draft 7 of JSON Schema, because the YAML plug-ins of editors support this draft. */
export function configJsonSchema(): Record<string, unknown> {
  return {
    ...z.toJSONSchema(Config, { target: "draft-7", io: "input", unrepresentable: "any" }),
    title: "Plenum configuration",
  };
}

/** Settings outside `commands` that a second person must approve, because they affect tag writes; without secrets. */
export function settingsAffectingTagWrites(config: Config): Readonly<Record<string, unknown>> {
  const sourceConnectionOptions = Object.entries(config.sources).map(
    ([name, { base_url, ca_file, proxy, time_zone }]) => [name, { base_url, ca_file, proxy, time_zone }] as const,
  );
  const sinksAcceptingCommands = Object.entries(config.sinks)
    // Include sinks that could accept commands, unless `commands.enabled` is false.
    .filter(([, sink]) => sink.enabled && canSinkAcceptCommands(sink) && findCommandOptions(sink)?.enabled !== false)
    .map(([name, sink]) => [name, { [findSinkConnector(sink)]: sink[findSinkConnector(sink)] }] as const);
  return { sources: Object.fromEntries(sourceConnectionOptions), senders: Object.fromEntries(sinksAcceptingCommands) };
}

export function canSinkAcceptCommands(sink: SinkConfigEntry): boolean {
  return getConnector(findSinkConnector(sink)).commands !== undefined;
}

export function acceptsCommands(sink: SinkConfigEntry): boolean {
  return sink.enabled && canSinkAcceptCommands(sink) && findCommandOptions(sink)?.enabled === true;
}

function findCommandOptions(sink: SinkConfigEntry): { readonly enabled: boolean } | undefined {
  const options = sink[findSinkConnector(sink)] as { readonly commands?: { readonly enabled: boolean } } | undefined;
  return options?.commands;
}
