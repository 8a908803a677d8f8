import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import type { Imports } from "./packages.ts";

const root = join(import.meta.dirname, "../..");

/** Every program of the product, from the root of the project on. */
export function programs(): readonly string[] {
  return [...walk("src"), ...walk("connectors")].filter((file) => /\.(ts|mjs)$/.test(file));
}

/** Every page that a browser is given. */
export function pages(): readonly string[] {
  return [...walk("src")].filter((file) => file.endsWith(".html"));
}

/** Every program that tests it or is made for that, and those that build and check it. */
export function testPrograms(): readonly string[] {
  return [...walk("test"), ...walk("tools")].filter((file) => /\.(ts|mjs|cjs)$/.test(file));
}

export function textOf(file: string): string {
  return readFileSync(join(root, file), "utf8");
}

/** Returns what each program imports: files relative to the root of the project, and names of packages. */
export function importsOfAll(): Imports {
  return new Map(programs().map((file) => [file, importsIn(file, textOf(file))]));
}

export function importsIn(file: string, text: string): readonly string[] {
  const found = [
    ...text.matchAll(/^(?:import|export)\s[^"'`;]*?\bfrom\s+"([^"]+)"/gm),
    ...text.matchAll(/^import\s+"([^"]+)"/gm),
    ...text.matchAll(/\bimport\(\s*"([^"]+)"/g),
  ];
  return found.map((match) => targetOf(file, match[1] ?? ""));
}

function targetOf(file: string, name: string): string {
  if (name.startsWith(".")) return relative(root, join(root, dirname(file), name));
  if (name.startsWith("#")) return name.slice(1);
  // The page's programs name each other as the server of the page does.
  const served = `src/ui/status/page${name}`;
  return name.startsWith("/") && existsSync(join(root, served)) ? served : name;
}

function* walk(folder: string): Generator<string> {
  for (const name of readdirSync(join(root, folder))) {
    const path = `${folder}/${name}`;
    if (statSync(join(root, path)).isDirectory()) yield* walk(path);
    else yield path;
  }
}
