import { type Command, Option } from "commander";
import type { Alarm } from "../building.ts";
import type { AlarmFilter } from "../source/source.ts";
import { type CliContext, collect, integer } from "./context.ts";

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
        terminal.progress("Listing alarms", () =>
          collect(
            reader.alarms(
              {
                status: options.status,
                ...(options.site === undefined ? {} : { siteId: options.site }),
                ...(options.priority === undefined ? {} : { priority: options.priority }),
              },
              signal,
            ),
          ),
        ),
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
