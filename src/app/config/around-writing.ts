import { definitionOf } from "../../../connectors/catalog.ts";
import { type Config, connectorOf, type SinkEntry } from "./config.ts";

/**
 * Settings outside the section `commands` that decide about writing, for approval by a second person: services, proxies and time
 * zones of the sources, and the complete sinks that accept commands. Secrets appear only as references.
 */
export function aroundWriting(config: Config): Readonly<Record<string, unknown>> {
  const sources = Object.entries(config.sources).map(
    ([name, { base_url, ca_file, proxy, time_zone }]) => [name, { base_url, ca_file, proxy, time_zone }] as const,
  );
  const senders = Object.entries(config.sinks)
    .filter(([, sink]) => listens(sink))
    .map(([name, sink]) => [name, { [connectorOf(sink)]: sink[connectorOf(sink)] }] as const);
  return { sources: Object.fromEntries(sources), senders: Object.fromEntries(senders) };
}

/** A sink that could listen counts, unless it is configured not to. */
function listens(sink: SinkEntry): boolean {
  return sink.enabled && canListen(sink) && optionOf(sink)?.enabled !== false;
}

/** Whether the sink's connector can receive commands at all. */
export function canListen(sink: SinkEntry): boolean {
  return definitionOf(connectorOf(sink)).commands !== undefined;
}

/** Whether commands come through the sink. */
export function isListening(sink: SinkEntry): boolean {
  return sink.enabled && canListen(sink) && optionOf(sink)?.enabled === true;
}

function optionOf(sink: SinkEntry): { readonly enabled: boolean } | undefined {
  const options = sink[connectorOf(sink)] as { readonly commands?: { readonly enabled: boolean } } | undefined;
  return options?.commands;
}
