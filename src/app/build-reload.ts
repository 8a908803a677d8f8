import { isDeepStrictEqual } from "node:util";
import { type Log, setLevel } from "../core/runtime/log.ts";
import type { Commands } from "../engine/commands/commands.ts";
import type { BackPressure } from "../engine/delivery/back-pressure.ts";
import type { Dispatcher } from "../engine/delivery/dispatcher.ts";
import type { Pruning } from "../engine/delivery/pruning.ts";
import type { RetentionBounds } from "../engine/store/store.ts";
import { readCredentials } from "../ui/status/access.ts";
import {
  type BuiltSinks,
  buildSinks,
  closeNew,
  followsHistory,
  type Listening,
  listenersOf,
  type SinkParts,
  sinksOf,
} from "./build-sinks.ts";
import type { PageSettings } from "./build-status.ts";
import type { BuiltSync } from "./build-sync.ts";
import type { Config } from "./config/config.ts";
import { aroundWriting } from "./config/config.ts";
import type { Reconfigurable } from "./reload/reloader.ts";

export interface RunningParts {
  readonly config: Config;
  readonly environment: Readonly<Record<string, string | undefined>> | undefined;
  readonly log: Log;
  readonly page: PageSettings;
  readonly backPressure: BackPressure;
  readonly pruning: Pruning;
  readonly commands: Commands;
  readonly dispatcher: Dispatcher;
  readonly listening: Listening;
  readonly sinks: { built: BuiltSinks };
  readonly sinkParts: SinkParts;
  readonly syncs: ReadonlyMap<string, BuiltSync>;
}

/** In the order of a reload: writing closes first; a sink is registered before its events are requested. */
export function reconfigurableParts(parts: RunningParts): readonly Reconfigurable[] {
  const { backPressure, commands, config, dispatcher, environment, listening, log, page, pruning } = parts;
  const { sinks, sinkParts, syncs } = parts;
  // The log may have another level than the file, given at the start.
  let { level } = config.log;
  return [
    {
      name: "log",
      prepare: async (next) => ({
        takeOver() {
          if (next.log.level !== level) setLevel(log, next.log.level);
          level = next.log.level;
        },
      }),
    },
    {
      name: "page",
      async prepare(next) {
        const credentials = readCredentials(next.status, environment);
        return { takeOver: () => page.change(next, credentials) };
      },
    },
    {
      // Together, because the sinks that accept commands are a part of what is approved.
      name: "sinks and commands",
      async prepare(next) {
        const before = sinks.built;
        const built = await buildSinks(next.sinks, { ...sinkParts, followsHistory: followsHistory(next) }, before);
        return {
          async takeOver() {
            sinks.built = built;
            await listening.keepOnly(listenersOf(built));
            commands.change(next.commands, aroundWriting(next));
            await dispatcher.change(sinksOf(built));
            await listening.openAll(listenersOf(built));
          },
          discard: () => closeNew(built, before),
        };
      },
    },
    {
      name: "log of events",
      prepare: async ({ state }) => ({
        takeOver() {
          backPressure.change(state.max_bytes);
          pruning.change({ bounds: boundsOf(state), sinks: sinksOf(sinks.built) });
        },
      }),
    },
    ...[...syncs].map(([name, sync]) => reconfigurableSource(name, sync, config)),
  ];
}

export function boundsOf(state: Config["state"]): Omit<RetentionBounds, "wanted" | "ranMs"> {
  return { maxBytes: state.max_bytes, maxAgeMs: state.max_age, replayMs: state.replay_window };
}

function reconfigurableSource(name: string, sync: BuiltSync, config: Config): Reconfigurable {
  let inForce = { entry: config.sources[name], state: config.state };
  return {
    name: `source ${name}`,
    prepare: async ({ sources, state }) => ({
      async takeOver() {
        const next = { entry: sources[name], state };
        if (next.entry === undefined || isDeepStrictEqual(next, inForce)) return;
        inForce = next;
        await sync.change(next.entry, state);
      },
    }),
  };
}
