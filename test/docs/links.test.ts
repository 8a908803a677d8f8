import { existsSync } from "node:fs";
import { dirname, join, posix } from "node:path";
import { expect, test } from "vitest";
import { anchorsIn, linksIn, type Page, pages } from "./markdown.ts";

const ROOT = join(import.meta.dirname, "../..");
const byFile = new Map(pages.map((page) => [page.file, page]));

/** Returns the errors of the links of a page. */
function brokenLinks(page: Page): readonly string[] {
  return linksIn(page).flatMap((target) => {
    if (/^(https?|mailto):/.test(target)) return [];
    const [path = "", place = ""] = decodeURIComponent(target).split("#");
    const file = path === "" ? page.file : posix.join(dirname(page.file), path);
    if (file.startsWith("..") || !existsSync(join(ROOT, file))) return [`${page.file}: no file ${target}`];
    const linkedPage = byFile.get(file.replace(/\/$/, ""));
    if (place === "" || linkedPage === undefined) return [];
    return anchorsIn(linkedPage).has(place) ? [] : [`${page.file}: no place ${target}`];
  });
}

test("links in the documents lead to existing files and headings", () => {
  expect(pages.length).toBeGreaterThan(40);
  expect(pages.flatMap(linksIn).length).toBeGreaterThan(400);
  expect(pages.flatMap(brokenLinks)).toEqual([]);
});

test("the link check reports a missing file and a missing heading", () => {
  const text = "[a](docs/nowhere.md) [b](README.md#no-such-heading) [c](README.md#try-it) `[d](x.md)`";
  expect(brokenLinks({ file: "README.md", text })).toEqual([
    "README.md: no file docs/nowhere.md",
    "README.md: no place README.md#no-such-heading",
  ]);
});

test("docs/README.md links to every document in docs", () => {
  const index = byFile.get("docs/README.md");
  const linkedFiles = new Set((index === undefined ? [] : linksIn(index)).map((target) => posix.join("docs", target)));
  const missing = pages.filter(
    ({ file }) => file.startsWith("docs/") && file !== "docs/README.md" && !linkedFiles.has(file),
  );
  // The index of recipes names them.
  expect(missing.map(({ file }) => file).filter((file) => !file.startsWith("docs/recipes/"))).toEqual([]);
});
