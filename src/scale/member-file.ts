import { changesBetween } from "../app/config/changes.ts";
import type { Config } from "../app/config/config.ts";
import { ConfigurationError, problemLine } from "../app/config/problems.ts";
import { watchFile } from "../app/reload/file-watch.ts";
import type { ConfigFile } from "../app/worker.ts";
import { sentence } from "../core/errors/errors.ts";
import {
  type ConfigurationState,
  type ReloadedBy,
  type ReloadReport,
  refusedNotice,
} from "../core/model/reload-facts.ts";
import type { Clock } from "../core/runtime/clock.ts";
import { type Log, withoutCredentials } from "../core/runtime/log.ts";
import { isoUtc } from "../core/values/iso-utc.ts";

/**
 * The configuration file of a member. All members of a fleet have the same configuration, which they prove to each other
 * when they start, so none takes a change over by itself: what the file changes waits until all are stopped and started.
 */
export function createMemberFile(options: {
  readonly configFile: ConfigFile;
  /** Current configuration. */
  readonly config: Config;
  readonly clock: Clock;
  readonly log: Log;
}) {
  const { clock, config, configFile, log } = options;
  const { file } = configFile;
  let state: ConfigurationState = { file, last: null, pending: [], refused: null };

  function look(by: ReloadedBy, isDryRun: boolean): ReloadReport {
    const report = { by, at: isoUtc(clock.now()), file, isDryRun, changes: [], failures: [] };
    let found: Pick<ReloadReport, "pending" | "refused">;
    try {
      const pending = changesBetween(config, configFile.load()).map((change) => ({
        ...change,
        effect: "restart" as const,
        how: "a fleet takes a change over when all of its members are stopped and started",
      }));
      found = { pending, refused: null };
    } catch (error) {
      const lines = error instanceof ConfigurationError ? error.problems.map(problemLine) : [sentence(error)];
      found = { pending: state.pending, refused: lines.map(withoutCredentials) };
    }
    const whole = { ...report, ...found };
    if (isDryRun) return whole;
    const isNews = JSON.stringify(found) !== JSON.stringify({ pending: state.pending, refused: state.refused });
    if (isNews || by !== "file") state = { file, last: whole, ...found };
    if (isNews) log.info({ by, ...found }, "the configuration file was changed; a fleet waits for a restart of all");
    return whole;
  }

  const watch = watchFile({ file, clock, log, onQuiet: async () => look("file", false).refused === null });

  return {
    watch,
    state: () => state,
    reload: async (by: ReloadedBy, isDryRun: boolean) => look(by, isDryRun),
    notices: (): readonly string[] => [
      ...(state.refused === null ? [] : [refusedNotice(file, state.refused)]),
      ...(state.pending.length === 0
        ? []
        : [
            `The configuration file was changed (${state.pending.map(({ path }) => path).join(", ")}); it counts once all members of the fleet were stopped and started.`,
          ]),
    ],
  };
}
