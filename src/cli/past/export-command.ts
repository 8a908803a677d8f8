import { accessSync, constants, existsSync, mkdirSync, readdirSync, rmSync } from "node:fs";
import { join, resolve } from "node:path";
import { type Command, InvalidArgumentError, Option } from "commander";
import type { Config } from "../../app/config/config.ts";
import { ConfigError } from "../../core/errors/errors.ts";
import { RESOLUTIONS, type Resolution } from "../../core/model/building.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { openStore } from "../../engine/store/open.ts";
import { bucketStart } from "../../engine/sync/history/buckets.ts";
import { closedUntilMs } from "../../engine/sync/history/ledger.ts";
import { backfillRules } from "../../engine/sync/history/series-registry.ts";
import { findWorker } from "../../ui/operator/control-socket-client.ts";
import { type CliContext, chooseSource } from "../shell/command-context.ts";
import {
  addTagSelectionOptions,
  buildTagSelection,
  parseTime,
  type TagSelectionOptions,
} from "../shell/common-command-options.ts";
import { EXIT_CODE } from "../shell/exit-codes.ts";
import { useAndClose } from "../shell/open-worker-state.ts";
import { type ExportOutcome, type ExportRequest, runExport } from "./export-history-run.ts";
import { gapReasonText, groupEqualGaps } from "./history-gaps-command.ts";

/** Time as typed and as UTC. A resumed export must have the same text: `30d` means another time tomorrow. */
type RequestedTime = ReturnType<typeof parseRequestedTime>;

interface ExportCommandOptions extends TagSelectionOptions {
  readonly source?: string;
  readonly from: RequestedTime;
  readonly to: RequestedTime;
  readonly toFolder: string;
  readonly resolution: Resolution;
  readonly format: "parquet";
}

const EXPORT_STATE_FOLDER_NAME = ".export";

export function defineCommand(command: Command, context: CliContext): void {
  command
    .argument("[tag...]", "only these tags; with no selection at all, every tag")
    .requiredOption("--from <time>", "start: ISO 8601, or an age such as 365d", parseRequestedTime)
    .addOption(
      new Option("--to <time>", "end: ISO 8601, or an age")
        .argParser(parseRequestedTime)
        .default(parseRequestedTime("0s"), "now"),
    )
    .requiredOption("--to-folder <folder>", "where the tables go; empty, or it does not exist yet")
    .addOption(new Option("--resolution <size>", "interval of the series").choices(RESOLUTIONS).default("5m"))
    .addOption(new Option("--format <format>", "how tables are written").choices(["parquet"]).default("parquet"))
    .option("--source <name>", "which source, when there are several");
  addTagSelectionOptions(command)
    .addHelpText(
      "after",
      "\nCtrl-C stops it; the same command goes on where it was. No worker may run with this configuration meanwhile." +
        `\n\nExit code 0: everything that was asked for is there, or has no log; ${EXIT_CODE.incomplete}: something was refused.` +
        "\n\nExample:\n  plenum export --from 30d --site 1 --resolution 1h --to-folder /srv/export",
    )
    .action(async (tagIds: string[], options: ExportCommandOptions) => {
      const terminal = context.terminal();
      const config = context.config();
      const [source, sourceConfig] = chooseSource(config, options.source);
      const request = buildExportRequest(tagIds, options, source, sourceConfig.time_zone);
      await refuseSharedQuota(config.state, context.signal);
      const folder = resolve(options.toFolder);
      const isNewExport = prepareExportFolder(folder);
      // Lock the state: no worker can start, and requests of the export are counted in the worker's quota.
      const lockedStateStore = await openStore({ folder: config.state.folder, clock: systemClock });
      await useAndClose(lockedStateStore, async ({ quotaStore }) => {
        const stateFolder = join(folder, EXPORT_STATE_FOLDER_NAME);
        const exportRun = {
          config,
          source,
          sourceConfig,
          folder,
          stateFolder,
          request,
          quotaStore,
          signal: context.signal,
        };
        const exportOutcome = await terminal.progress("Exporting", (update) => runExport({ ...exportRun, update }));
        if (exportOutcome instanceof ConfigError) {
          if (isNewExport) for (const name of readdirSync(folder)) rmSync(join(folder, name), { recursive: true });
          throw exportOutcome;
        }
        if (exportOutcome.complete) rmSync(stateFolder, { recursive: true });
        else process.exitCode = EXIT_CODE.incomplete;
        terminal.print({ folder, ...exportOutcome }, exportSummaryLines(folder, exportOutcome));
      });
    });
}

const parseRequestedTime = (text: string) => ({ text, at: parseTime(text) });

function buildExportRequest(
  tagIds: readonly string[],
  options: ExportCommandOptions,
  source: string,
  timeZone: string,
): ExportRequest {
  const { from, resolution, to } = options;
  if (from.at >= to.at) throw new InvalidArgumentError("--from has to be before --to.");
  const nowMs = systemClock.now();
  const lastClosedIntervalEnd = isoUtc(closedUntilMs(backfillRules(resolution, timeZone), nowMs));
  const firstIntervalStart = isoUtc(bucketStart(Date.parse(from.at), { resolution, timeZone }));
  const end = lastClosedIntervalEnd < to.at ? lastClosedIntervalEnd : to.at;
  if (firstIntervalStart >= end)
    throw new InvalidArgumentError(`No interval of ${resolution} has closed since --from; the first will by itself.`);
  const select = buildTagSelection(tagIds, options);
  const backfillRequest = {
    from: firstIntervalStart,
    to: end,
    resolution,
    select,
    askedAt: isoUtc(nowMs),
    doneAt: null,
  };
  return { backfillRequest, requestText: JSON.stringify([source, from.text, to.text, resolution, select]) };
}

async function refuseSharedQuota({ folder, postgres }: Config["state"], signal: AbortSignal): Promise<void> {
  if (postgres !== undefined)
    throw new ConfigError("In a fleet an export would spend the quota of whichever member holds the source.", {
      hint: "Give the fleet a `parquet` sink in S3 and order the past with `plenum backfill`; or stop all members, and export with a configuration that has no state.postgres.",
    });
  if ((await findWorker(folder, signal)).kind !== "none")
    throw new ConfigError("A worker runs with this configuration, and an export would spend its quota.", {
      hint: "Stop it for the time of the export, or give it a `parquet` sink and order the past with `plenum backfill`.",
    });
}

/** Prepares the target folder; returns false for a folder with an unfinished export. */
function prepareExportFolder(folder: string): boolean {
  let fileNames: readonly string[];
  try {
    if (!existsSync(folder)) mkdirSync(folder, { recursive: true });
    accessSync(folder, constants.W_OK);
    fileNames = readdirSync(folder);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    const hint = "Name one that you may write, with --to-folder.";
    throw new ConfigError(`The folder ${folder} cannot be used (${code}).`, { hint, cause: error });
  }
  if (fileNames.includes(EXPORT_STATE_FOLDER_NAME)) return false;
  if (fileNames.length === 0) return true;
  throw new ConfigError(`The folder ${folder} is not empty, and no export was begun there.`, {
    hint: "Name one that is empty or does not exist yet: two exports in one folder would double what both have.",
  });
}

function exportSummaryLines(folder: string, outcome: ExportOutcome): readonly string[] {
  const { complete, from, holes, had, null: nulls, sealedDays, tags, to, troubles } = outcome;
  return [
    `${had} values and ${nulls} intervals without one, of ${tags} tags, from ${from} to ${to}, are in ${folder}; ${sealedDays} days are sealed.`,
    ...groupEqualGaps(holes, false).map(({ tags: count, example, gap }) => {
      const gapRangeText = gap.from === null ? "" : ` from ${gap.from} to ${gap.to}`;
      const moreTagsText = count === 1 ? "" : ` and ${count - 1} more`;
      return `not had${gapRangeText}: ${example}${moreTagsText}: ${gapReasonText(gap)}`;
    }),
    ...troubles,
    ...(complete
      ? []
      : ["It is not complete; the same command asks again for what was refused, at the earliest when it says above."]),
  ];
}
