import { writeFileSync } from "node:fs";
import { join } from "node:path";
import type { LakeTable } from "../connectors/shared/lake/table-model.ts";
import { LAKE_TABLES } from "../connectors/shared/lake/tables.ts";

/** `npm run lake:tables` writes the columns of all tables into docs/lake/tables.md. */

export const TABLES_FILE = "docs/lake/tables.md";

const KEEPING: Readonly<Record<LakeTable["rowPolicy"], string>> = {
  append: "Each row once and for good.",
  latest: "One row for each key: the last word counts.",
  versions: "One row for each state, from `valid_from` to `valid_to`.",
};

export function tablesText(tables: readonly LakeTable[]): string {
  const list = tables.map(({ name, about }) => `- [\`${name}\`](#${name}): ${about}`);
  const sections = tables.map((table) => {
    const rows = table.columns.map(
      ({ name, type, isNullable, about }) =>
        `| \`${name}\` | ${type} | ${isNullable ? "may be null" : ""} | ${about.replaceAll("|", "\\|")} |`,
    );
    const key = table.key.map((name) => `\`${name}\``).join(", ");
    const sorted = table.sortedBy.map((name) => `\`${name}\``).join(", ");
    return [
      `## ${table.name}`,
      "",
      `${table.about} ${KEEPING[table.rowPolicy]}`,
      "",
      `Key: ${key}. Day by \`${table.time}\`. Sorted by ${sorted}.`,
      "",
      "| Column | Type | | |",
      "|---|---|---|---|",
      ...rows,
    ].join("\n");
  });
  return `${[INTRODUCTION, list.join("\n"), ...sections].join("\n\n")}\n`;
}

const INTRODUCTION = `# The tables of the lake

Written by \`npm run lake:tables\` from \`connectors/shared/lake/tables.ts\`; how they are kept and queried is in [lake.md](../lake.md).
\`time\` is a moment in UTC with microseconds, \`integer\` has 64 bits, \`number\` is a double, \`json\` a text that holds
JSON.`;

if (import.meta.main) {
  writeFileSync(join(import.meta.dirname, "..", TABLES_FILE), tablesText(LAKE_TABLES));
}
