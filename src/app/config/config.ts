import { z } from "zod";
import { getConnector } from "../../../connectors/catalog.ts";
import { ConfigSections, findConnector, type SinkEntry } from "./config-sections.ts";
import { findContradictions } from "./contradictory-options.ts";

export const Config = ConfigSections.superRefine((config, context) => {
  for (const { path, message } of findContradictions(config)) {
    context.addIssue({ code: "custom", path: [...path], message });
  }
});
export type Config = z.output<typeof Config>;
export type SourceEntry = Config["sources"][string];

/** JSON Schema of draft 7, which editors' YAML servers know. */
export function configJsonSchema(): Record<string, unknown> {
  return {
    ...z.toJSONSchema(Config, { target: "draft-7", io: "input", unrepresentable: "any" }),
    title: "Plenum configuration",
  };
}

/** Settings outside `commands` that affect tag writes, for approval by a second person. Contains no secrets. */
export function writingSettings(config: Config): Readonly<Record<string, unknown>> {
  const sources = Object.entries(config.sources).map(
    ([name, { base_url, ca_file, proxy, time_zone }]) => [name, { base_url, ca_file, proxy, time_zone }] as const,
  );
  const commandSinks = Object.entries(config.sinks)
    // Include sinks that could accept commands, unless `commands.enabled` is false.
    .filter(([, sink]) => sink.enabled && canAcceptCommands(sink) && commandOptions(sink)?.enabled !== false)
    .map(([name, sink]) => [name, { [findConnector(sink)]: sink[findConnector(sink)] }] as const);
  return { sources: Object.fromEntries(sources), senders: Object.fromEntries(commandSinks) };
}

export function canAcceptCommands(sink: SinkEntry): boolean {
  return getConnector(findConnector(sink)).commands !== undefined;
}

export function acceptsCommands(sink: SinkEntry): boolean {
  return sink.enabled && canAcceptCommands(sink) && commandOptions(sink)?.enabled === true;
}

function commandOptions(sink: SinkEntry): { readonly enabled: boolean } | undefined {
  const options = sink[findConnector(sink)] as { readonly commands?: { readonly enabled: boolean } } | undefined;
  return options?.commands;
}
