import type { Command } from "commander";
import { SENSOR_FINDINGS, type SensorFinding, type SilentSensors } from "../../core/model/tag-event-data.ts";
import type { Store } from "../../engine/store/store.ts";
import { type StoredSensorPeriod, syncSet } from "../../engine/sync/stored-documents.ts";
import { type CliContext, parseInteger, readSourceFromState } from "../shell/command-context.ts";
import { refuseUnknownIds } from "../shell/refuse-unknown-ids.ts";

export function defineCommand(command: Command, context: CliContext): void {
  command
    .option("--source <name>", "which source, when there are several")
    .option("--site <id>", "only this site", parseInteger)
    .addHelpText(
      "after",
      "\nThe worker sends no extra requests: it watches the values that it reads, and reports once a week.\n\nExample:\n  plenum silent-sensors --site 3",
    )
    .action(async (options: { readonly source?: string; readonly site?: number }) => {
      const terminal = context.terminal();
      await readSourceFromState(context.config(), options.source, async ({ source, entry, store }) => {
        if (options.site !== undefined) await refuseUnknownIds(store, [source], "site", [`${options.site}`]);
        const reports = await readReports(store, source, options.site);
        if (terminal.json) return terminal.print(reports, []);
        if (reports.length === 0) terminal.info(await explainMissingReport(store, source, entry.silent_sensors));
        for (const report of reports.filter(({ part }) => part === 1)) terminal.info(summarizeSensorReport(report));
        const rows = reports.flatMap(({ site, findings }) =>
          findings.map((finding) => ({ ...finding, siteId: site.id })),
        );
        if (rows.length === 0) return;
        const tagColumn = ({ tag: { id, displayName } }: SensorFinding) => `${id} ${displayName}`;
        terminal.printRows(rows, { site: "siteId", tag: tagColumn, finding: "finding", why: "message" });
      });
    });
}

async function readReports(store: Store, source: string, site: number | undefined): Promise<readonly SilentSensors[]> {
  const storedReports = await store.documents<SilentSensors>(syncSet("silent-sensors", source));
  return [...storedReports.values()]
    .filter((report) => site === undefined || report.site.id === site)
    .sort((a, b) => a.site.id - b.site.id || a.part - b.part);
}

function summarizeSensorReport({ site, from, to, watchedHours, tags, judged, counts }: SilentSensors): string {
  const findingCounts = SENSOR_FINDINGS.filter((kind) => counts[kind] > 0).map((kind) => `${counts[kind]} ${kind}`);
  const findingCountsText = findingCounts.length === 0 ? "nothing to report" : findingCounts.join(", ");
  return `Site ${site.id} ${site.displayName}: ${findingCountsText}. ${judged} of ${tags} tags judged, ${watchedHours} h watched from ${from} to ${to}.`;
}

async function explainMissingReport(
  store: Store,
  source: string,
  silentSensorOptions: object | false,
): Promise<string> {
  if (silentSensorOptions === false) return "No sensor is watched: silent_sensors is false in the configuration.";
  const watchPeriod = await store.document<StoredSensorPeriod>(syncSet("sensors", source), "period");
  if (watchPeriod === undefined) return "There is no report yet: the worker has not watched for an hour.";
  const watchedHours = Math.floor(watchPeriod.watchedMs / 3_600_000);
  return `There is no report yet: what is read has been watched since ${watchPeriod.from}, for ${watchedHours} h.`;
}
