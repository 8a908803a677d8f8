import type { Command } from "commander";
import type { SourceConfigEntry } from "../../app/config/config.ts";
import { ConfigError } from "../../core/errors/errors.ts";
import type { Tag } from "../../core/model/building.ts";
import { documentSet, type Store } from "../../engine/store/store.ts";
import { type StoredLedger, type StoredTagSystems, type StoredValue, syncSet } from "../../engine/sync/snapshot.ts";
import { createClassFinder } from "../../engine/sync/tag-selection.ts";
import { type CliContext, chooseSource } from "../shell/command-context.ts";
import { readStateIfAny } from "../shell/open-worker-state.ts";
import {
  addInventoryOptions,
  ageText,
  type Inventory,
  type InventoryOptions,
  type LocatedObject,
  printOrigin,
  readInventory,
  showSelected,
} from "./building-inventory.ts";

interface TagListOptions extends InventoryOptions {
  readonly unit?: string;
  readonly system?: string;
  readonly class?: string;
}

/** Printed row of a tag; null: the value was never read. */
interface TagRow extends Tag {
  readonly siteId: number;
  readonly site: string;
  readonly systemIds: readonly string[];
  /** Class of live reads in the configuration that selects the tag. */
  readonly class: string | null;
  readonly hasLog: boolean | null;
  readonly value: StoredValue["value"] | undefined;
  readonly quality: StoredValue["quality"] | null;
  readonly readAt: string | null;
}

interface StoredTagState {
  readonly values: ReadonlyMap<string, StoredValue>;
  readonly systems: ReadonlyMap<string, StoredTagSystems>;
  /** True for a tag with a log; unknown tags are absent. */
  readonly logs: ReadonlyMap<string, boolean>;
}

export function define(command: Command, context: CliContext): void {
  addInventoryOptions(command)
    .argument("[id...]", "only tags with these ids")
    .option("--unit <unit>", 'only tags of this unit, as the service writes it; "" for those without')
    .option("--system <id>", "only tags of this system; `plenum systems` lists them")
    .option("--class <name>", "only tags that this class of `read` has")
    .addHelpText(
      "after",
      "\nExamples:\n  plenum tags --search supply --site 1\n  plenum tags --unit kWh --json\n  plenum tags 10001 10002",
    )
    .action(async (ids: readonly string[], options: TagListOptions) => {
      const terminal = context.terminal();
      const config = context.config();
      const [source, entry] = chooseSource(config, options.source);
      refuseUnknownClass(options.class, entry);
      const emptyState = { values: new Map(), systems: new Map(), logs: new Map() };
      const tagState = (await readStateIfAny({ config, source }, (store) => readTagState(store, source))) ?? emptyState;
      // Ask the service for the tags of a system unless the worker learns them (inventory.tags_of_systems).
      const systemToAsk = entry.inventory.tags_of_systems ? undefined : options.system;
      const inventory = await readInventory(context, "tag", options, systemToAsk);
      refuseUnknownSystem(options, entry, inventory.items, tagState);
      refuseUnknownUnit(options.unit, inventory.items);
      showSelected({ ...inventory, items: buildRows(inventory, tagState, entry, options) }, "tag", ids, (selected) => {
        const rows = selected.map(({ value }) => value);
        const hasSystems = rows.some(({ systemIds }) => systemIds.length > 0);
        terminal.rows(rows, {
          id: "id",
          name: "displayName",
          value: valueText,
          unit: "unit",
          age: ({ readAt }) => (readAt === null ? null : ageText(readAt)),
          class: "class",
          log: ({ hasLog }) => (hasLog === null ? null : hasLog ? "yes" : "no"),
          site: ({ siteId, site }) => `${siteId} ${site}`,
          ...(hasSystems && { systems: ({ systemIds }: TagRow) => systemIds.join(" ") }),
          description: "description",
        });
        printOrigin(terminal, "tag", selected.length, inventory);
      });
    });
}

async function readTagState(store: Store, source: string): Promise<StoredTagState> {
  const [values, systems, ledgers] = await Promise.all([
    store.documents<StoredValue>(documentSet("value", source)),
    store.documents<StoredTagSystems>(syncSet("tag-system", source)),
    store.documents<StoredLedger>(documentSet("history", source)),
  ]);
  const logs = new Map<string, boolean>();
  for (const [key, { state }] of ledgers) {
    const [id = ""] = key.split(" ");
    // One series with data proves the log, whatever another resolution returned.
    if (state === "following") logs.set(id, true);
    else if (state === "no-log" && !logs.has(id)) logs.set(id, false);
  }
  return { values, systems, logs };
}

function buildRows(
  { items }: Inventory<Tag>,
  { values, systems, logs }: StoredTagState,
  { read, inventory }: SourceConfigEntry,
  { unit, system, class: className }: TagListOptions,
): readonly LocatedObject<TagRow>[] {
  const findTagClass = createClassFinder(read);
  return items.flatMap(({ value: tag, siteId, site }) => {
    const systemIds = systems.get(tag.id)?.systemIds ?? [];
    const { value, quality = null, time: readAt = null } = values.get(tag.id) ?? {};
    const tagClass = findTagClass({ tag, siteId, systemIds })?.name ?? null;
    if (unit !== undefined && (tag.unit ?? "") !== unit) return [];
    if (system !== undefined && inventory.tags_of_systems && !systemIds.includes(system)) return [];
    if (className !== undefined && tagClass !== className) return [];
    const hasLog = logs.get(tag.id) ?? null;
    const row = { ...tag, siteId, site, systemIds, class: tagClass, hasLog, value, quality, readAt };
    return [{ value: row, siteId, site }];
  });
}

/** Returns null, a dash in the table, for a tag that was never read. */
function valueText({ value, quality }: TagRow): string | number | boolean | null {
  if (value === undefined) return null;
  if (value === null) return "no value";
  return quality === "good" ? value : `${value} (${quality})`;
}

function refuseUnknownClass(name: string | undefined, { read }: SourceConfigEntry): void {
  const names = read.map((each) => each.name);
  if (name === undefined || names.includes(name)) return;
  throw new ConfigError(
    names.length === 0
      ? `There is no class ${name}: nothing is read (\`read\` is empty).`
      : `There is no class ${name} under \`read\`; there are ${names.join(", ")}.`,
  );
}

/** Throws ConfigError for a system without tags in the list of the service or in the state. */
function refuseUnknownSystem(
  { system }: TagListOptions,
  { inventory }: SourceConfigEntry,
  listedTags: readonly LocatedObject<Tag>[],
  { systems }: StoredTagState,
): void {
  if (system === undefined) return;
  const isMember = (id: string) => !inventory.tags_of_systems || systems.get(id)?.systemIds.includes(system);
  if (listedTags.some(({ value }) => isMember(value.id))) return;
  throw new ConfigError(`No tag that fits belongs to the system ${system}.`, {
    hint: "`plenum systems` lists the systems.",
  });
}

const MAX_NAMED_UNITS = 12;

/** Throws ConfigError with the known units. */
function refuseUnknownUnit(unit: string | undefined, tags: readonly LocatedObject<Tag>[]): void {
  const counts = Map.groupBy(tags, ({ value }) => value.unit ?? "");
  if (unit === undefined || tags.length === 0 || counts.has(unit)) return;
  const namedUnits = [...counts]
    .toSorted(([, a], [, b]) => b.length - a.length)
    .slice(0, MAX_NAMED_UNITS)
    .map(([each, { length }]) => `${each === "" ? "none" : each} (${length})`);
  throw new ConfigError(`No tag has the unit "${unit}"; there are ${namedUnits.join(", ")}.`);
}
