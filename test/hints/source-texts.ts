import { programs, textOf } from "../structure/imports.ts";

/** A text for people in the sources. A placeholder of a template becomes `…`. */
export interface SourceText {
  readonly location: string;
  readonly text: string;
}

const LITERAL = /"((?:[^"\\\n]|\\.)*)"|'((?:[^'\\\n]|\\.)*)'|`((?:[^`\\]|\\.)*)`/g;

function productFiles(): readonly string[] {
  return programs().filter((file) => !file.startsWith("src/simulator/") && file.endsWith(".ts"));
}

function listLiterals(code: string): readonly string[] {
  return [...code.matchAll(LITERAL)].map((found) =>
    (found[1] ?? found[2] ?? found[3] ?? "").replaceAll(/\$\{[^}]*\}/g, "…").replaceAll(/\\(.)/g, "$1"),
  );
}

/** Every hint: what stands behind `hint:`, over several lines where it is a choice. */
export function listHints(): readonly SourceText[] {
  return productFiles().flatMap((file) => {
    const code = textOf(file);
    return [...code.matchAll(/\bhint:([^\n]*(?:\n\s+[?:"'`][^\n]*)*)/g)].flatMap((found) => {
      const line = code.slice(0, found.index).split("\n").length;
      return listLiterals(found[1] ?? "").map((text) => ({ location: `${file}:${line}`, text }));
    });
  });
}

/** Every Plenum command between backticks in the texts of the sources. */
export function listCommandLines(): readonly SourceText[] {
  return productFiles().flatMap((file) =>
    textOf(file)
      .split("\n")
      .flatMap((line, n) =>
        /^\s*(\*|\/\/|\/\*)/.test(line)
          ? []
          : [...line.matchAll(/\\?`plenum ([a-z][^`\\]*)\\?`/g)].map((found) => ({
              location: `${file}:${n + 1}`,
              text: (found[1] ?? "").replaceAll(/\$\{[^}]*\}/g, "…"),
            })),
      ),
  );
}
