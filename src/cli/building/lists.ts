import { type Command, Option } from "commander";
import { meaningOf } from "../../core/errors/errors.ts";
import type { Alarm, Gateway, Host, Site, System } from "../../core/model/building.ts";
import type { AlarmFilter } from "../../engine/source/source.ts";
import { type CliContext, collect, parseInteger } from "../shell/context.ts";
import type { Column } from "../shell/terminal.ts";
import {
  type InventoryOptions,
  inventoryOf,
  inventoryOptions,
  type Kind,
  type Located,
  namesOf,
  printOrigin,
  refuseUnknownSite,
  showChosen,
} from "./inventory.ts";

interface Row {
  readonly id: string;
  readonly displayName: string;
  readonly siteId: number;
  readonly site: string;
}

export const gateways = listing<Gateway>("gateway", "a gateway", [
  { title: "online", value: (row) => row.online },
  { title: "version", value: (row) => row.version },
  { title: "hardware", value: (row) => row.hardware },
  { title: "address", value: (row) => row.ipAddress },
  { title: "location", value: (row) => row.location },
]);

export const hosts = listing<Host>("host", "a host", [
  { title: "type", value: (row) => row.type },
  { title: "model", value: (row) => row.modelName },
  { title: "address", value: (row) => row.ip },
  { title: "gateway", value: (row) => row.gateway?.displayName ?? null },
]);

export const systems = listing<System>("system", "a system", [
  { title: "code", value: (row) => row.code },
  { title: "discipline", value: (row) => row.discipline },
  { title: "data points", value: (row) => row.datapointsCount },
  { title: "location", value: (row) => row.location },
]);

/** A command that lists things of one kind, with what is particular to them between their name and their site. */
function listing<T extends { readonly id: string; readonly displayName: string }>(
  kind: Exclude<Kind, "tag">,
  what: string,
  columns: readonly Column<T & Row>[],
) {
  return {
    define(command: Command, context: CliContext): void {
      inventoryOptions(command)
        .argument("[id...]", `only ${what} with one of these ids`)
        .addHelpText("after", `\nExample:\n  plenum ${kind}s --search north --json`)
        .action(async (ids: readonly string[], options: InventoryOptions) => {
          const terminal = context.terminal();
          const found = await inventoryOf(context, kind, options);
          const items = found.items as unknown as readonly Located<T>[];
          showChosen({ ...found, items }, kind, ids, (chosen) => {
            terminal.rows<T & Row>(
              chosen.map(({ value, siteId, site }) => ({ ...value, siteId, site })),
              [
                { title: "id", value: (row) => row.id },
                { title: "name", value: (row) => row.displayName },
                ...columns,
                { title: "site", value: (row) => `${row.siteId} ${row.site}` },
              ],
            );
            printOrigin(terminal, kind, chosen.length, found);
          });
        });
    },
  };
}

function defineSites(command: Command, context: CliContext): void {
  command
    .option("--source <name>", "which source, when there are several")
    .option("--search <text>", "only names that contain this")
    .addHelpText("after", "\nExample:\n  plenum sites --search school --json")
    .action(async (options: { readonly source?: string; readonly search?: string }) => {
      const terminal = context.terminal();
      const sites = await context.withReader(options.source, (reader, signal) =>
        terminal.progress("Listing sites", () =>
          collect(reader.sites(options.search === undefined ? {} : { search: options.search }, signal)),
        ),
      );
      terminal.rows<Site>(sites, [
        { title: "id", value: (site) => site.id },
        { title: "name", value: (site) => site.displayName },
      ]);
    });
}

/** `plenum sites`. */
export const sites = { define: defineSites };

interface AlarmOptions {
  readonly source?: string;
  readonly site?: number;
  readonly status: AlarmFilter["status"];
  readonly priority?: "A" | "B" | "C";
}

function defineAlarms(command: Command, context: CliContext): void {
  command
    .option("--source <name>", "which source, when there are several")
    .option("--site <id>", "only this site", parseInteger)
    .addOption(new Option("--status <status>", "which").choices(["active", "resolved", "all"]).default("active"))
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

/** `plenum alarms`. */
export const alarms = { define: defineAlarms };
