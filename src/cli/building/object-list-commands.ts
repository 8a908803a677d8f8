import { type Command, Option } from "commander";
import { asFailure } from "../../core/errors/errors.ts";
import type { Gateway, Host, System } from "../../core/model/building.ts";
import type { AlarmFilter } from "../../engine/source/source.ts";
import { type CliContext, collectPageItems, parseInteger } from "../shell/command-context.ts";
import type { TableColumns } from "../shell/terminal-output.ts";
import {
  addInventoryOptions,
  type InventoryOptions,
  mapSiteNames,
  type ObjectKind,
  type ObjectWithSite,
  printListOrigin,
  readBuildingInventory,
  refuseUnknownSite,
  showObjects,
} from "./building-inventory.ts";

export const defineGatewaysCommand = inventoryListDefinition<Gateway>("gateway", "a gateway", {
  online: "online",
  version: "version",
  hardware: "hardware",
  address: "ipAddress",
  location: "location",
});

export const defineHostsCommand = inventoryListDefinition<Host>("host", "a host", {
  type: "type",
  model: "modelName",
  address: "ip",
  gateway: (host) => host.gateway?.displayName ?? null,
});

export const defineSystemsCommand = inventoryListDefinition<System>("system", "a system", {
  code: "code",
  discipline: "discipline",
  "data points": "datapointsCount",
  location: "location",
});

/** Returns a function that defines a command such as `plenum gateways`, which lists the objects of one kind. */
function inventoryListDefinition<T extends { readonly id: string; readonly displayName: string }>(
  kind: Exclude<ObjectKind, "tag">,
  nounWithArticle: string,
  columns: TableColumns<T>,
) {
  return (command: Command, context: CliContext) =>
    addInventoryOptions(command)
      .argument("[id...]", `only ${nounWithArticle} with one of these ids`)
      .addHelpText("after", `\nExample:\n  plenum ${kind}s --search north --json`)
      .action(async (ids: readonly string[], options: InventoryOptions) => {
        const inventory = await readBuildingInventory(context, kind, options);
        const items = inventory.items as unknown as readonly ObjectWithSite<T>[];
        showObjects({ ...inventory, items }, kind, ids, (selectedItems) => {
          const inventoryRows = selectedItems.map(({ value, siteId, site }) => ({ ...value, siteId, site }));
          const siteColumn = (row: (typeof inventoryRows)[number]) => `${row.siteId} ${row.site}`;
          context.terminal().printRows(inventoryRows, { id: "id", name: "displayName", ...columns, site: siteColumn });
          printListOrigin(context.terminal(), kind, selectedItems.length, inventory);
        });
      });
}

export function defineSitesCommand(command: Command, context: CliContext): void {
  command
    .option("--source <name>", "which source, when there are several")
    .option("--search <text>", "only names that contain this")
    .addHelpText("after", "\nExample:\n  plenum sites --search school --json")
    .action(async ({ source, search }: Pick<InventoryOptions, "source" | "search">) => {
      const terminal = context.terminal();
      const siteFilter = search === undefined ? {} : { search };
      const foundSites = await context.withReader(source, (reader, signal) =>
        terminal.progress("Listing sites", () => collectPageItems(reader.sites(siteFilter, signal))),
      );
      terminal.printRows(foundSites, { id: "id", name: "displayName" });
    });
}

interface AlarmListOptions {
  readonly source?: string;
  readonly site?: number;
  readonly status: AlarmFilter["status"];
  readonly priority?: "A" | "B" | "C";
}

export function defineAlarmsCommand(command: Command, context: CliContext): void {
  command
    .option("--source <name>", "which source, when there are several")
    .option("--site <id>", "only this site", parseInteger)
    .addOption(new Option("--status <status>", "which").choices(["active", "resolved", "all"]).default("active"))
    .addOption(new Option("--priority <letter>", "only this priority").choices(["A", "B", "C"]))
    .addHelpText("after", "\nExample:\n  plenum alarms --priority A --json")
    .action(async (options: AlarmListOptions) => {
      const terminal = context.terminal();
      terminal.printRows(await terminal.progress("Listing alarms", () => listAlarms(context, options)), {
        id: "id",
        priority: (alarm) => alarm.trigger.priority,
        status: "status",
        triggered: "triggeredAt",
        resolved: "resolvedAt",
        site: (alarm) => alarm.site.displayName,
        trigger: (alarm) => alarm.trigger.displayName,
        acknowledged: (alarm) => alarm.acknowledgedBy ?? alarm.acknowledged,
      });
    });
}

function listAlarms(context: CliContext, { source, site, status, priority }: AlarmListOptions) {
  return context.withReader(source, async (reader, signal) => {
    const alarmFilter = { status, ...(site !== undefined && { siteId: site }), ...(priority && { priority }) };
    try {
      return await collectPageItems(reader.alarms(alarmFilter, signal));
    } catch (error) {
      // The service rejects an unknown site with a validation error that does not name the site.
      const failure = asFailure(error);
      if (failure.kind === "config" && failure.reason === "validation")
        refuseUnknownSite(site, mapSiteNames(await collectPageItems(reader.sites({}, signal))));
      throw error;
    }
  });
}
