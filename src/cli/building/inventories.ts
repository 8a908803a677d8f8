import type { Command } from "commander";
import type { Gateway, Host, System } from "../../core/model/building.ts";
import type { CliContext } from "../shell/context.ts";
import type { Column } from "../shell/terminal.ts";
import {
  type InventoryOptions,
  inventoryOf,
  inventoryOptions,
  type Kind,
  type Placed,
  showChosen,
  tellBasis,
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
          const items = found.items as unknown as readonly Placed<T>[];
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
            tellBasis(terminal, kind, chosen.length, found);
          });
        });
    },
  };
}
