import { isDeepStrictEqual } from "node:util";
import { getConnector } from "../../connectors/catalog.ts";
import type { AcceptCommand, CommandSource, ConnectorContext, FleetAssignment, Sink } from "../core/connector.ts";
import { startServiceOnce } from "../core/runtime/lifecycle.ts";
import { createSinkState } from "../engine/delivery/batches.ts";
import type { ConfiguredSink } from "../engine/delivery/sink-runner.ts";
import type { Store } from "../engine/store/store.ts";
import type { Config } from "./config/config.ts";
import { findSinkConnector, type SinkConfigEntry } from "./config/config-sections.ts";

export interface BuiltSink {
  readonly sinkConfig: SinkConfigEntry;
  readonly configuredSink: ConfiguredSink | null;
  readonly commandListener: CommandSource | null;
}

export type BuiltSinksByName = ReadonlyMap<string, BuiltSink>;

/** Returns a substitute for the named sink, used in place of the connector's sink; null for no substitute. */
export type CreateReplacementSink = (name: string, context: ConnectorContext) => Sink | null;

export interface SinkDependencies extends Pick<ConnectorContext, "clock" | "log" | "metrics" | "building"> {
  readonly createReplacementSink?: CreateReplacementSink | undefined;
  readonly store: Store;
  readonly followsHistory?: boolean;
  readonly assignment?: FleetAssignment | undefined;
}

export function readsHistory({ sources }: Pick<Config, "sources">): boolean {
  return Object.values(sources).some(({ history }) => history.length > 0);
}

/** Builds the enabled sinks. Reuses running sinks whose options did not change. On an error, closes the new sinks. */
export async function buildSinks(
  config: Config["sinks"],
  dependencies: SinkDependencies,
  oldSinks: BuiltSinksByName = new Map(),
): Promise<BuiltSinksByName> {
  const builtSinks = new Map<string, BuiltSink>();
  try {
    for (const [name, sinkConfig] of Object.entries(config)) {
      if (!sinkConfig.enabled) continue;
      const oldSink = oldSinks.get(name);
      if (oldSink !== undefined && isDeepStrictEqual(oldSink.sinkConfig, sinkConfig)) builtSinks.set(name, oldSink);
      else builtSinks.set(name, await buildSink(name, sinkConfig, dependencies, oldSink));
    }
  } catch (error) {
    await closeNewSinks(builtSinks, oldSinks);
    throw error;
  }
  return builtSinks;
}

async function buildSink(
  name: string,
  sinkConfig: SinkConfigEntry,
  dependencies: SinkDependencies,
  oldSink: BuiltSink | undefined,
): Promise<BuiltSink> {
  const { clock, metrics, building, assignment, store } = dependencies;
  const connector = findSinkConnector(sinkConfig);
  const options = sinkConfig[connector];
  const definition = getConnector(connector);
  const { copy: stateCopy } = await store.describe();
  const context: ConnectorContext = {
    ...{ name, clock, metrics, building, log: dependencies.log.child({ sink: name }) },
    sinkState: createSinkState(name, store),
    ...(stateCopy && { identity: stateCopy.identity }),
    ...(dependencies.followsHistory === true && { readsHistory: true }),
    ...(assignment && { assignment }),
  };
  const sink = dependencies.createReplacementSink?.(name, context) ?? (await definition.sink?.(options, context));
  const sharesResourceWith = (otherSink: ConfiguredSink) =>
    otherSink.connector === connector && (definition.findSharedStore?.(otherSink.options, options) ?? null) !== null;
  const configuredSink =
    sink === undefined
      ? null
      : { name, connector, sink, delivery: sinkConfig, options, conflictsWith: sharesResourceWith };
  const hasSameOptions = oldSink !== undefined && isDeepStrictEqual(oldSink.sinkConfig[connector], options);
  const commandListener = hasSameOptions
    ? oldSink.commandListener
    : ((await definition.commands?.(options, context)) ?? null);
  return { sinkConfig, configuredSink, commandListener };
}

export async function closeNewSinks(builtSinks: BuiltSinksByName, oldSinks: BuiltSinksByName): Promise<void> {
  for (const [name, { configuredSink, commandListener }] of builtSinks) {
    const oldSink = oldSinks.get(name);
    if (oldSink?.configuredSink !== configuredSink) await configuredSink?.sink.close().catch(() => undefined);
    if (oldSink?.commandListener !== commandListener) await commandListener?.close().catch(() => undefined);
  }
}

export function listConfiguredSinks(builtSinks: BuiltSinksByName): readonly ConfiguredSink[] {
  return [...builtSinks.values()].flatMap(({ configuredSink }) => configuredSink ?? []);
}

export function listTicketSinkNames(builtSinks: BuiltSinksByName): readonly string[] {
  return listConfiguredSinks(builtSinks).flatMap(({ name, sink }) => (sink.test === undefined ? [] : name));
}

export function listCommandSources(builtSinks: BuiltSinksByName): readonly CommandSource[] {
  return [...builtSinks.values()].flatMap(({ commandListener }) => commandListener ?? []);
}

export type CommandListeners = ReturnType<typeof createCommandListeners>;

export function createCommandListeners(listeners: readonly CommandSource[], accept: AcceptCommand) {
  const openedCommandListeners = new Set<CommandSource>();
  let runSignal: AbortSignal | null = null;

  async function openCommandListeners(wantedListeners: readonly CommandSource[]): Promise<void> {
    if (runSignal === null) return;
    for (const commandListener of wantedListeners) {
      if (openedCommandListeners.has(commandListener)) continue;
      openedCommandListeners.add(commandListener);
      await commandListener.open(accept, runSignal);
    }
  }

  async function closeOtherCommandListeners(wantedListeners: readonly CommandSource[]): Promise<void> {
    const listenersToClose = [...openedCommandListeners].filter((listener) => !wantedListeners.includes(listener));
    for (const commandListener of listenersToClose) openedCommandListeners.delete(commandListener);
    const closeResults = await Promise.allSettled(listenersToClose.map((listener) => listener.close()));
    for (const closeResult of closeResults) if (closeResult.status === "rejected") throw closeResult.reason;
  }

  const service = startServiceOnce({
    name: "listening",
    async start(signal) {
      runSignal = signal;
      await openCommandListeners(listeners);
    },
    async stop() {
      runSignal = null;
      await closeOtherCommandListeners([]);
    },
  });
  return { ...service, keepOnly: closeOtherCommandListeners, openAll: openCommandListeners };
}
