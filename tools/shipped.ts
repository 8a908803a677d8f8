import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

/** Package that `npm ci --omit=dev` installs. */
export interface ShippedPackage {
  readonly name: string;
  readonly version: string;
  /** SPDX expression, such as `MIT` or `(MIT OR Apache-2.0)`. */
  readonly licence: string;
  /** `sha512-…` in base64. */
  readonly integrity: string;
  /** Sorted `name@version`. */
  readonly needs: readonly string[];
  readonly texts: readonly LicenceText[];
  /** Code of other projects in the package, which npm does not list. */
  readonly embedded: readonly Embedded[];
}

export interface LicenceText {
  readonly file: string;
  readonly text: string;
}

export interface Embedded {
  readonly name: string;
  readonly licence: string;
  readonly text: string;
}

const MIT = `Permission is hereby granted, free of charge, to any person obtaining a copy
of this software and associated documentation files (the "Software"), to deal
in the Software without restriction, including without limitation the rights
to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
copies of the Software, and to permit persons to whom the Software is
furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all
copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
SOFTWARE.`;

/** Embedded code by inspected package and version; inspect each new version again. */
const EMBEDDED_CODE: Readonly<Record<string, readonly Embedded[]>> = {
  // `htm/preact/standalone` contains Preact, but the package contains only htm's licence.
  "htm@3.1.1": [
    {
      name: "preact",
      licence: "MIT",
      text: `The MIT License (MIT)\n\nCopyright (c) 2015-present Jason Miller\n\n${MIT}`,
    },
  ],
};

interface Locked {
  readonly version?: string;
  readonly integrity?: string;
  readonly license?: string;
  /** `os` and `cpu`: npm installs the package only on these platforms. */
  readonly os?: readonly string[];
  readonly cpu?: readonly string[];
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly optionalDependencies?: Readonly<Record<string, string>>;
  readonly peerDependencies?: Readonly<Record<string, string>>;
}
type Lock = Readonly<Record<string, Locked>>;

/** Lists the packages from the lock file: `npm sbom --omit dev` of npm 11 omits packages that a development package needs too. */
export function shippedPackages(root: string): readonly ShippedPackage[] {
  const lock = (JSON.parse(readFileSync(join(root, "package-lock.json"), "utf8")) as { packages: Lock }).packages;
  const lockKeys = new Set<string>();
  const visit = (dependent: string, names: readonly string[]) => {
    for (const name of names) {
      const found = lockKeyOf(lock, dependent, name);
      if (found === null || lockKeys.has(found)) continue;
      lockKeys.add(found);
      visit(found, dependenciesOf(lock[found]));
    }
  };
  visit("", Object.keys(lock[""]?.dependencies ?? {}));

  // The lock file can contain several copies of one version; each is listed once.
  const all = new Map<string, ShippedPackage>();
  for (const lockKey of lockKeys) {
    const one = describePackage(root, lock, lockKey);
    all.set(`${one.name}@${one.version}`, one);
  }
  for (const inspected of Object.keys(EMBEDDED_CODE)) {
    const name = inspected.slice(0, inspected.lastIndexOf("@"));
    const other = [...all.keys()].find((key) => key.startsWith(`${name}@`) && key !== inspected);
    if (other === undefined) continue;
    throw new Error(
      `Inspect ${other} for embedded code, and replace ${inspected} in EMBEDDED_CODE (tools/shipped.ts).`,
    );
  }
  return [...all].toSorted(([a], [b]) => (a < b ? -1 : 1)).map(([, one]) => one);
}

function describePackage(root: string, lock: Lock, lockKey: string): ShippedPackage {
  const { version = "", integrity = "", license, os, cpu } = lock[lockKey] ?? {};
  const name = lockKey.slice(lockKey.lastIndexOf("node_modules/") + "node_modules/".length);
  const key = `${name}@${version}`;
  // Describes a platform package from the lock file, so that every platform has the same list.
  const isPlatformSpecific = os !== undefined || cpu !== undefined;
  const installed = isPlatformSpecific ? { version, license } : manifestAt(join(root, lockKey));
  if (installed?.version !== version) {
    throw new Error(`The installed ${name} differs from ${key} in package-lock.json; run npm ci.`);
  }
  const needs = dependenciesOf(lock[lockKey]).flatMap((needed) => {
    const found = lockKeyOf(lock, lockKey, needed);
    return found === null ? [] : [`${needed}@${lock[found]?.version}`];
  });
  return {
    name,
    version,
    licence: typeof installed.license === "string" ? installed.license : "unknown",
    integrity,
    needs: needs.toSorted(),
    texts: licenceTexts(join(root, isPlatformSpecific ? findDependentOf(lock, name) : lockKey)),
    embedded: EMBEDDED_CODE[key] ?? [],
  };
}

/** Returns names of dependencies. Peers count, because npm installs them; the lock file has no uninstalled peers. */
function dependenciesOf(locked: Locked | undefined): readonly string[] {
  return Object.keys({
    ...locked?.dependencies,
    ...locked?.optionalDependencies,
    ...locked?.peerDependencies,
  });
}

/** Returns the lock file's key of the package that Node.js finds for an import of `name` in the package `from`. */
function lockKeyOf(lock: Lock, from: string, name: string): string | null {
  for (let folder = from; ; folder = folder.slice(0, Math.max(0, folder.lastIndexOf("/node_modules/")))) {
    const key = folder === "" ? `node_modules/${name}` : `${folder}/node_modules/${name}`;
    if (key in lock) return key;
    if (folder === "") return null;
  }
}

function manifestAt(folder: string): { readonly version?: unknown; readonly license?: unknown } | null {
  try {
    return JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  } catch {
    return null;
  }
}

/** Returns the lock file's key of the package that requires a platform package, and that contains its licence. */
function findDependentOf(lock: Lock, name: string): string {
  const dependent = Object.keys(lock).find((each) => lock[each]?.optionalDependencies?.[name] !== undefined);
  if (dependent === undefined) throw new Error(`No package in package-lock.json requires ${name}; run npm install.`);
  return dependent;
}

/** Returns the licence files, or otherwise the licence section of the README. */
function licenceTexts(folder: string): readonly LicenceText[] {
  const files = licenceFiles(folder);
  if (files.length > 0) return files;
  const readme = readdirSync(folder).find((file) => /^readme(\.\w+)?$/i.test(file));
  if (readme === undefined) return [];
  const [, text = ""] = readFileSync(join(folder, readme), "utf8").split(/^##+ licen[cs]e[ \t]*$/im);
  return /copyright/i.test(text) ? [{ file: readme, text: normalizeText(text) }] : [];
}

function licenceFiles(folder: string): readonly LicenceText[] {
  return readdirSync(folder, { recursive: true, encoding: "utf8" })
    .map((file) => file.replaceAll("\\", "/"))
    .filter((file) => /(^|\/)(licen[cs]e|copying|notice)(\.\w+)?$/i.test(file) && !/(^|\/)node_modules\//.test(file))
    .toSorted()
    .map((file) => ({ file, text: normalizeText(readFileSync(join(folder, file), "utf8")) }));
}

function normalizeText(text: string): string {
  return text
    .replace(/^\uFEFF/, "")
    .replaceAll("\r\n", "\n")
    .replaceAll(/[ \t]+$/gm, "")
    .trim();
}
