import { Config, type SourceEntry } from "../../app/config/config.ts";

/** Names the one sink of an export. */
export const EXPORT_SINK = "export";

/** Lists are asked for when the worker starts; what a long export would list again is of no use to it. */
const AT_THE_START = "0 0 1 1 *";

/**
 * `fetching`: lists, once, and the past of an order; files are worth writing when they are large. `landing`: the service
 * is asked for nothing, and what is fetched is written at once.
 */
export type ExportStep = "fetching" | "landing";

/**
 * The configuration of the worker that does an export: one source, of which it only lists and fetches the past, and one
 * sink, the lake in `folder`. No alarms, no live reads, no commands, and a status page that nobody has to know of. Pure.
 */
export function exportConfig(options: {
  readonly config: Config;
  readonly source: string;
  readonly entry: SourceEntry;
  /** The lake. */
  readonly folder: string;
  readonly stateFolder: string;
  readonly step: ExportStep;
}): Config {
  const { config, entry, folder, source, stateFolder, step } = options;
  const isFetching = step === "fetching";
  const parts = Config.parse({
    // Its own source takes the place of this one: what is parsed already cannot be parsed again.
    sources: {
      [source]: { base_url: "https://replaced.invalid", token: { env: "REPLACED" }, time_zone: "UTC" },
    },
    sinks: {
      [EXPORT_SINK]: {
        from: "beginning",
        batch: 5_000,
        parquet: { folder, max_age: isFetching ? "15m" : "1s" },
      },
    },
  });
  const lists = isFetching ? AT_THE_START : false;
  const schedules: SourceEntry["schedules"] = {
    ...{ token: isFetching ? entry.schedules.token : false, alarms: false, resolved_sweep: false },
    ...{ sites: lists, gateways: lists, hosts: lists, systems: lists, tags: lists },
  };
  const inventory = { ...entry.inventory, tags_of_systems: true };
  return {
    ...parts,
    state: { ...config.state, folder: stateFolder, replay_window: 15 * 60_000 },
    // Trouble is told by the command itself; in a log nobody would look for it.
    log: { level: "silent" },
    status: { ...parts.status, port: 0 },
    sources: {
      [source]: {
        ...{ ...entry, read: [], history: [], silent_sensors: false, heartbeat: false },
        ...{ inventory, schedules },
      },
    },
  };
}
