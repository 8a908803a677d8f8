import { isDeepStrictEqual } from "node:util";
import { getConnector } from "../../connectors/catalog.ts";
import type { AcceptCommand, CommandSource, ConnectorContext, FleetAssignment, Sink } from "../core/connector.ts";
import { type Service, startedOnce } from "../core/runtime/lifecycle.ts";
import { createSinkState } from "../engine/delivery/batches.ts";
import type { ConfiguredSink } from "../engine/delivery/sink-runner.ts";
import type { Store } from "../engine/store/store.ts";
import type { Config } from "./config/config.ts";
import { findConnector, type SinkEntry } from "./config/config-sections.ts";

export interface BuiltSink {
  readonly entry: SinkEntry;
  readonly configured: ConfiguredSink | null;
  readonly listener: CommandSource | null;
}

export type BuiltSinks = ReadonlyMap<string, BuiltSink>;

/** Returns a sink that replaces the connector of the named sink; null keeps the connector. */
export type ReplaceSink = (name: string, context: ConnectorContext) => Sink | null;

export interface SinkParts extends Pick<ConnectorContext, "clock" | "log" | "metrics" | "building"> {
  readonly standIn?: ReplaceSink | undefined;
  readonly store: Store;
  readonly followsHistory?: boolean;
  readonly share?: FleetAssignment | undefined;
}

export function followsHistory({ sources }: Pick<Config, "sources">): boolean {
  return Object.values(sources).some(({ history }) => history.length > 0);
}

/** Builds the enabled sinks. Reuses unchanged sinks of `before`. On an error, closes the sinks that it has built. */
export async function buildSinks(
  config: Config["sinks"],
  parts: SinkParts,
  before: BuiltSinks = new Map(),
): Promise<BuiltSinks> {
  const built = new Map<string, BuiltSink>();
  try {
    for (const [name, entry] of Object.entries(config)) {
      if (!entry.enabled) continue;
      const former = before.get(name);
      if (former !== undefined && isDeepStrictEqual(former.entry, entry)) built.set(name, former);
      else built.set(name, await buildSink(name, entry, parts, former));
    }
  } catch (error) {
    await closeNewSinks(built, before);
    throw error;
  }
  return built;
}

async function buildSink(
  name: string,
  entry: SinkEntry,
  parts: SinkParts,
  before: BuiltSink | undefined,
): Promise<BuiltSink> {
  const { clock, metrics, building, share, store } = parts;
  const connector = findConnector(entry);
  const options = entry[connector];
  const definition = getConnector(connector);
  const { copy } = await store.describe();
  const context: ConnectorContext = {
    ...{ name, clock, metrics, building, log: parts.log.child({ sink: name }) },
    sinkState: createSinkState(name, store),
    ...(copy && { identity: copy.identity }),
    ...(parts.followsHistory === true && { readsHistory: true }),
    ...(share && { assignment: share }),
  };
  const sink = parts.standIn?.(name, context) ?? (await definition.sink?.(options, context));
  const meets = (other: ConfiguredSink) =>
    other.connector === connector && (definition.shared?.(other.options, options) ?? null) !== null;
  const configured = sink === undefined ? null : { name, connector, sink, delivery: entry, options, meets };
  const isSame = before !== undefined && isDeepStrictEqual(before.entry[connector], options);
  const listener = isSame ? before.listener : ((await definition.commands?.(options, context)) ?? null);
  return { entry, configured, listener };
}

export async function closeNewSinks(built: BuiltSinks, before: BuiltSinks): Promise<void> {
  for (const [name, { configured, listener }] of built) {
    const former = before.get(name);
    if (former?.configured !== configured) await configured?.sink.close().catch(() => undefined);
    if (former?.listener !== listener) await listener?.close().catch(() => undefined);
  }
}

export function listConfiguredSinks(built: BuiltSinks): readonly ConfiguredSink[] {
  return [...built.values()].flatMap(({ configured }) => configured ?? []);
}

export function listTicketSinks(built: BuiltSinks): readonly string[] {
  return listConfiguredSinks(built).flatMap(({ name, sink }) => (sink.test === undefined ? [] : name));
}

export function listCommandSources(built: BuiltSinks): readonly CommandSource[] {
  return [...built.values()].flatMap(({ listener }) => listener ?? []);
}

export interface CommandListening extends Service {
  keepOnly(listeners: readonly CommandSource[]): Promise<void>;
  openAll(listeners: readonly CommandSource[]): Promise<void>;
}

export function createCommandListening(listeners: readonly CommandSource[], accept: AcceptCommand): CommandListening {
  const open = new Set<CommandSource>();
  let running: AbortSignal | null = null;

  async function openAll(wanted: readonly CommandSource[]): Promise<void> {
    if (running === null) return;
    for (const listener of wanted) {
      if (open.has(listener)) continue;
      open.add(listener);
      await listener.open(accept, running);
    }
  }

  /** Closes all other listeners, even if one of them cannot be closed. */
  async function keepOnly(wanted: readonly CommandSource[]): Promise<void> {
    const leaving = [...open].filter((listener) => !wanted.includes(listener));
    for (const listener of leaving) open.delete(listener);
    const closed = await Promise.allSettled(leaving.map((listener) => listener.close()));
    for (const each of closed) if (each.status === "rejected") throw each.reason;
  }

  const service = startedOnce({
    name: "listening",
    async start(signal) {
      running = signal;
      await openAll(listeners);
    },
    async stop() {
      running = null;
      await keepOnly([]);
    },
  });
  return { ...service, keepOnly, openAll };
}
