import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { LAKE_TABLES } from "#connectors/shared/lake/tables.ts";
import { TABLES_FILE, tablesText } from "../../tools/lake-tables.ts";

test("docs/lake/tables.md describes the current tables; update it with `npm run lake:tables`", () => {
  const text = readFileSync(join(import.meta.dirname, "..", "..", TABLES_FILE), "utf8");
  expect(text === tablesText(LAKE_TABLES), "npm run lake:tables").toBe(true);
});
