import { isDeepStrictEqual } from "node:util";
import type { Config } from "../app/config/config.ts";
import { findConfigChanges } from "../app/config/config-changes.ts";
import { formatConfigProblems } from "../app/config/config-problems.ts";
import { watchFile } from "../app/reload/file-watch.ts";
import type { ReloadableConfigFile } from "../app/reload/reloader.ts";
import {
  type ConfigurationState,
  invalidConfigNotice,
  type ReloadCause,
  type ReloadReport,
} from "../core/model/config-change-report.ts";
import type { Clock } from "../core/runtime/clock.ts";
import type { Log } from "../core/runtime/log.ts";
import { isoUtc } from "../core/values/iso-utc.ts";

/** Watches the configuration file of a member. A change takes effect after all members of the fleet were restarted. */
export function createMemberConfigFile(options: {
  readonly configFile: ReloadableConfigFile;
  readonly config: Config;
  readonly clock: Clock;
  readonly log: Log;
}) {
  const { clock, config, configFile, log } = options;
  const { file } = configFile;
  let fileState: ConfigurationState = { file, last: null, pending: [], refused: null };

  function readConfigChanges(): Pick<ReloadReport, "pending" | "refused"> {
    const how = "a fleet takes a change over when all of its members are stopped and started";
    try {
      const changes = findConfigChanges(config, configFile.loadConfig());
      return { pending: changes.map((change) => ({ ...change, effect: "restart" as const, how })), refused: null };
    } catch (error) {
      return { pending: fileState.pending, refused: formatConfigProblems(error) };
    }
  }

  function checkConfigFile(by: ReloadCause, isDryRun: boolean): ReloadReport {
    const fileChanges = readConfigChanges();
    const reloadReport = { by, at: isoUtc(clock.now()), file, isDryRun, changes: [], failures: [], ...fileChanges };
    if (isDryRun) return reloadReport;
    const isNewChange = !isDeepStrictEqual(fileChanges, { pending: fileState.pending, refused: fileState.refused });
    if (isNewChange || by !== "file") fileState = { file, last: reloadReport, ...fileChanges };
    const message = "the configuration file was changed; a fleet waits for a restart of all";
    if (isNewChange) log.info({ by, ...fileChanges }, message);
    return reloadReport;
  }

  return {
    watch: watchFile({
      ...{ name: "configuration file", file, clock, log },
      onStable: async () => checkConfigFile("file", false).refused === null,
    }),
    state: () => fileState,
    reload: async (by: ReloadCause, isDryRun: boolean) => checkConfigFile(by, isDryRun),
    notices(): readonly string[] {
      const changedOptionPaths = fileState.pending.map(({ path }) => path).join(", ");
      const pendingChangesNotice = `The configuration file was changed (${changedOptionPaths}); it counts once all members of the fleet were stopped and started.`;
      return [
        ...(fileState.refused === null ? [] : [invalidConfigNotice(file, fileState.refused)]),
        ...(fileState.pending.length === 0 ? [] : [pendingChangesNotice]),
      ];
    },
  };
}
