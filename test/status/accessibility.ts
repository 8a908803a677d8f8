import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import type { AxeResults } from "axe-core";
import type { Page } from "playwright-core";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** Returns the barriers that axe finds for users of screen readers and keyboards. `only`: names of the rules to check. */
export async function findings(page: Page, only?: readonly string[]): Promise<readonly string[]> {
  await page.evaluate(AXE);
  const options = only === undefined ? {} : { runOnly: only };
  const { violations } = (await page.evaluate(`axe.run(${JSON.stringify(options)})`)) as AxeResults;
  return violations.flatMap(({ id, nodes }) => nodes.map(({ html, any }) => `${id}: ${html} ${any[0]?.message ?? ""}`));
}
