import { type Command, Option } from "commander";
import { meaningOf } from "../../core/errors/errors.ts";
import type { Alarm } from "../../core/model/building.ts";
import type { AlarmFilter } from "../../engine/source/source.ts";
import { type CliContext, collect, integer } from "../shell/context.ts";
import { namesOf, refuseUnknownSite } from "./inventory.ts";

interface AlarmOptions {
  readonly source?: string;
  readonly site?: number;
  readonly status: AlarmFilter["status"];
  readonly priority?: "A" | "B" | "C";
}

export function define(command: Command, context: CliContext): void {
  command
    .option("--source <name>", "which source, when there are several")
    .option("--site <id>", "only this site", integer)
    .addOption(
      new Option("--status <status>", "which").choices(["active", "resolved", "all"]).default("active"),
    )
    .addOption(new Option("--priority <letter>", "only this priority").choices(["A", "B", "C"]))
    .addHelpText("after", "\nExample:\n  plenum alarms --priority A --json")
    .action(async (options: AlarmOptions) => {
      const terminal = context.terminal();
      const alarms = await context.withReader(options.source, (reader, signal) =>
        terminal.progress("Listing alarms", async () => {
          const { site, status, priority } = options;
          const filter = {
            status,
            ...(site === undefined ? {} : { siteId: site }),
            ...(priority === undefined ? {} : { priority }),
          };
          try {
            return await collect(reader.alarms(filter, signal));
          } catch (error) {
            // The service refuses a site that it does not show, without a word that people would understand.
            const failure = meaningOf(error);
            if (failure.kind === "config" && failure.reason === "validation")
              refuseUnknownSite(site, namesOf(await collect(reader.sites({}, signal))));
            throw error;
          }
        }),
      );
      terminal.rows<Alarm>(alarms, [
        { title: "id", value: (alarm) => alarm.id },
        { title: "priority", value: (alarm) => alarm.trigger.priority },
        { title: "status", value: (alarm) => alarm.status },
        { title: "triggered", value: (alarm) => alarm.triggeredAt },
        { title: "resolved", value: (alarm) => alarm.resolvedAt },
        { title: "site", value: (alarm) => alarm.site.displayName },
        { title: "trigger", value: (alarm) => alarm.trigger.displayName },
        { title: "acknowledged", value: (alarm) => alarm.acknowledgedBy ?? alarm.acknowledged },
      ]);
    });
}
