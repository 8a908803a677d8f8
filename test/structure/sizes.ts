import { importsOfAll, programs, testPrograms, textOf } from "./imports.ts";
import type { Imports } from "./packages.ts";

/** Largest permitted size of the code base. A change that needs more lines deletes others first. */
export const SIZE_LIMITS: Sizes = { files: 600, lines: 82_000, testLines: 90_000, smallFilesWithOneImporter: 20 };

export interface Sizes {
  /** Programs in src and connectors. */
  readonly files: number;
  readonly lines: number;
  readonly testLines: number;
  /** Files of less than 60 lines in src and connectors that one other file imports. */
  readonly smallFilesWithOneImporter: number;
}

const SMALL = 60;

export function sizesToday(): Sizes {
  const files = programs();
  return {
    files: files.length,
    lines: sum(files),
    testLines: sum(testPrograms().filter((file) => file.startsWith("test/"))),
    smallFilesWithOneImporter: smallFilesWithOneImporter(importsOfAll(), linesIn).length,
  };
}

/** The file `definition.ts` of a connector is not counted: each connector has one, for `connectors/catalog.ts`. */
export function smallFilesWithOneImporter(imports: Imports, lines: (file: string) => number): readonly string[] {
  const importers = new Map<string, Set<string>>();
  for (const [file, targets] of imports)
    for (const target of targets) importers.set(target, (importers.get(target) ?? new Set()).add(file));
  const counted = [...imports.keys()].filter((file) => !/^connectors\/\w+\/definition\.ts$/.test(file));
  return counted.filter((file) => importers.get(file)?.size === 1 && lines(file) < SMALL);
}

function sum(files: readonly string[]): number {
  return files.reduce((total, file) => total + linesIn(file), 0);
}

function linesIn(file: string): number {
  return textOf(file).split("\n").length - 1;
}
