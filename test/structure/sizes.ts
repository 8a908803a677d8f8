import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { importsOfAll, programs, testPrograms, textOf } from "./imports.ts";
import type { Imports } from "./packages.ts";

/** Sizes of the code base, whose ceilings are in sizes.json; `npm run sizes` writes today's numbers there. */
export interface Sizes {
  /** Programs in src and connectors. */
  readonly files: number;
  readonly lines: number;
  /** Programs in test. */
  readonly testFiles: number;
  readonly testLines: number;
  /** Files of less than 60 lines in src and connectors that one other file imports; the target is 20. */
  readonly smallFilesWithOneImporter: number;
}

const SMALL = 60;

export function sizesToday(): Sizes {
  const files = programs();
  const tests = testPrograms().filter((file) => file.startsWith("test/"));
  return {
    files: files.length,
    lines: sum(files),
    testFiles: tests.length,
    testLines: sum(tests),
    smallFilesWithOneImporter: smallFilesWithOneImporter(importsOfAll(), linesIn).length,
  };
}

export function smallFilesWithOneImporter(imports: Imports, lines: (file: string) => number): readonly string[] {
  const importers = new Map<string, Set<string>>();
  for (const [file, targets] of imports)
    for (const target of targets) importers.set(target, (importers.get(target) ?? new Set()).add(file));
  return [...imports.keys()].filter((file) => importers.get(file)?.size === 1 && lines(file) < SMALL);
}

function sum(files: readonly string[]): number {
  return files.reduce((total, file) => total + linesIn(file), 0);
}

function linesIn(file: string): number {
  return textOf(file).split("\n").length - 1;
}

if (import.meta.main) {
  writeFileSync(join(import.meta.dirname, "sizes.json"), `${JSON.stringify(sizesToday(), null, 2)}\n`);
}
