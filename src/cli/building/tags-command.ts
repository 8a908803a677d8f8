import type { Command } from "commander";
import type { SourceConfigEntry } from "../../app/config/config.ts";
import { ConfigError } from "../../core/errors/errors.ts";
import type { Tag } from "../../core/model/building.ts";
import { documentSet, type Store } from "../../engine/store/store.ts";
import {
  readingTimeOf,
  type StoredLedger,
  type StoredTagSystems,
  type StoredValue,
  syncSet,
} from "../../engine/sync/stored-documents.ts";
import { createClassFinder } from "../../engine/sync/tag-selection.ts";
import { type CliContext, chooseSource } from "../shell/command-context.ts";
import { readStateIfAny } from "../shell/open-worker-state.ts";
import {
  addInventoryOptions,
  ageText,
  type Inventory,
  type InventoryOptions,
  type ObjectWithSite,
  printListOrigin,
  readBuildingInventory,
  showObjects,
} from "./building-inventory.ts";

interface TagListOptions extends InventoryOptions {
  readonly unit?: string;
  readonly system?: string;
  readonly class?: string;
}

type PrintedTagRow = ReturnType<typeof listTagRows>[number]["value"];

type StoredTagState = Awaited<ReturnType<typeof readTagState>>;

export function defineCommand(command: Command, context: CliContext): void {
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
      const [source, sourceConfig] = chooseSource(config, options.source);
      refuseUnknownReadClass(options.class, sourceConfig);
      const emptyState = { values: new Map(), systems: new Map(), hasLogByTag: new Map() };
      const tagState = (await readStateIfAny({ config, source }, (store) => readTagState(store, source))) ?? emptyState;
      // Ask the service for the tags of a system unless the worker stores them (inventory.tags_of_systems).
      const requestedSystemId = sourceConfig.inventory.tags_of_systems ? undefined : options.system;
      const inventory = await readBuildingInventory(context, "tag", options, requestedSystemId);
      refuseUnknownSystem(options, sourceConfig, inventory.items, tagState);
      refuseUnknownUnit(options.unit, inventory.items);
      showObjects(
        { ...inventory, items: listTagRows(inventory, tagState, sourceConfig, options) },
        "tag",
        ids,
        (selectedTags) => {
          const tagRows = selectedTags.map(({ value }) => value);
          const hasAlias = tagRows.some(({ alias }) => alias !== undefined);
          const hasTagSystems = tagRows.some(({ systemIds }) => systemIds.length > 0);
          terminal.printRows(tagRows, {
            id: "id",
            name: "displayName",
            ...(hasAlias && { alias: ({ alias }: PrintedTagRow) => alias ?? null }),
            value: tagValueText,
            unit: "unit",
            age: ({ readAt }) => (readAt === null ? null : ageText(readAt)),
            class: "class",
            log: ({ hasLog }) => (hasLog === null ? null : hasLog ? "yes" : "no"),
            site: ({ siteId, site }) => `${siteId} ${site}`,
            ...(hasTagSystems && { systems: ({ systemIds }: PrintedTagRow) => systemIds.join(" ") }),
            description: "description",
          });
          printListOrigin(terminal, "tag", selectedTags.length, inventory);
        },
      );
    });
}

async function readTagState(store: Store, source: string) {
  const [values, systems, ledgers] = await Promise.all([
    store.documents<StoredValue>(documentSet("value", source)),
    store.documents<StoredTagSystems>(syncSet("tag-system", source)),
    store.documents<StoredLedger>(documentSet("history", source)),
  ]);
  /** By tag id: true if the service logs the tag. A tag is absent while this is unknown. */
  const hasLogByTag = new Map<string, boolean>();
  for (const [key, { state }] of ledgers) {
    const [id = ""] = key.split(" ");
    // A tag with data at one resolution is logged, whatever the service says about other resolutions.
    if (state === "following") hasLogByTag.set(id, true);
    else if (state === "no-log" && !hasLogByTag.has(id)) hasLogByTag.set(id, false);
  }
  return { values, systems, hasLogByTag };
}

function listTagRows(
  { items }: Inventory<Tag>,
  { values, systems, hasLogByTag }: StoredTagState,
  { read, inventory }: SourceConfigEntry,
  { unit, system, class: className }: TagListOptions,
) {
  const findReadClass = createClassFinder(read);
  return items.flatMap(({ value: tag, siteId, site }) => {
    const systemIds = systems.get(tag.id)?.systemIds ?? [];
    const storedValue = values.get(tag.id);
    const { value, quality = null } = storedValue ?? {};
    const readAt = storedValue === undefined ? null : readingTimeOf(storedValue);
    const readClassName = findReadClass({ tag, siteId, systemIds })?.name ?? null;
    if (unit !== undefined && (tag.unit ?? "") !== unit) return [];
    if (system !== undefined && inventory.tags_of_systems && !systemIds.includes(system)) return [];
    if (className !== undefined && readClassName !== className) return [];
    const hasLog = hasLogByTag.get(tag.id) ?? null;
    const tagRow = { ...tag, siteId, site, systemIds, class: readClassName, hasLog, value, quality, readAt };
    return [{ value: tagRow, siteId, site }];
  });
}

/** Returns null, which the table shows as a dash, for a tag that was never read. */
function tagValueText({ value, quality }: PrintedTagRow): string | number | boolean | null {
  if (value === undefined) return null;
  if (value === null) return quality === "stale" ? "no value (stale)" : "no value";
  return quality === "good" ? value : `${value} (${quality})`;
}

function refuseUnknownReadClass(name: string | undefined, { read }: SourceConfigEntry): void {
  const readClassNames = read.map((readClass) => readClass.name);
  if (name === undefined || readClassNames.includes(name)) return;
  throw new ConfigError(
    readClassNames.length === 0
      ? `There is no class ${name}: nothing is read (\`read\` is empty).`
      : `There is no class ${name} under \`read\`; there are ${readClassNames.join(", ")}.`,
  );
}

function refuseUnknownSystem(
  { system }: TagListOptions,
  { inventory }: SourceConfigEntry,
  listedTags: readonly ObjectWithSite<Tag>[],
  { systems }: StoredTagState,
): void {
  if (system === undefined) return;
  const isTagInSystem = (id: string) => !inventory.tags_of_systems || systems.get(id)?.systemIds.includes(system);
  if (listedTags.some(({ value }) => isTagInSystem(value.id))) return;
  throw new ConfigError(`No tag that fits belongs to the system ${system}.`, {
    hint: "`plenum systems` lists the systems.",
  });
}

const MAX_UNITS_IN_ERROR = 12;

function refuseUnknownUnit(unit: string | undefined, tags: readonly ObjectWithSite<Tag>[]): void {
  const tagsByUnit = Map.groupBy(tags, ({ value }) => value.unit ?? "");
  if (unit === undefined || tags.length === 0 || tagsByUnit.has(unit)) return;
  const commonUnitTexts = [...tagsByUnit]
    .toSorted(([, a], [, b]) => b.length - a.length)
    .slice(0, MAX_UNITS_IN_ERROR)
    .map(([unitCode, { length }]) => `${unitCode === "" ? "none" : unitCode} (${length})`);
  throw new ConfigError(`No tag has the unit "${unit}"; there are ${commonUnitTexts.join(", ")}.`);
}
