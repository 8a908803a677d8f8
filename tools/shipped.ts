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

/** By the package and version that was inspected; inspect each new version. */
const EMBEDDED_CODE: Readonly<Record<string, readonly Embedded[]>> = {
  // `preact/standalone` is htm and Preact together; only htm's licence is in the package.
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
  /** npm installs such a package on some machines only. */
  readonly os?: readonly string[];
  readonly cpu?: readonly string[];
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly optionalDependencies?: Readonly<Record<string, string>>;
  readonly peerDependencies?: Readonly<Record<string, string>>;
}
type Lock = Readonly<Record<string, Locked>>;

/** `npm sbom --omit dev` of npm 11 leaves out what a development dependency needs as well, such as yaml. */
export function shippedPackages(root: string): readonly ShippedPackage[] {
  const lock = (JSON.parse(readFileSync(join(root, "package-lock.json"), "utf8")) as { packages: Lock }).packages;
  const lockKeys = new Set<string>();
  const visit = (place: string, names: readonly string[]) => {
    for (const name of names) {
      const found = lockKeyOf(lock, place, name);
      if (found === null || lockKeys.has(found)) continue;
      lockKeys.add(found);
      visit(found, dependenciesOf(lock[found]));
    }
  };
  visit("", Object.keys(lock[""]?.dependencies ?? {}));

  // Packages that need different versions have their own copies.
  const all = new Map<string, ShippedPackage>();
  for (const place of lockKeys) {
    const one = describePackage(root, lock, place);
    all.set(`${one.name}@${one.version}`, one);
  }
  for (const inspected of Object.keys(EMBEDDED_CODE)) {
    const name = inspected.slice(0, inspected.lastIndexOf("@"));
    const other = [...all.keys()].find((key) => key.startsWith(`${name}@`) && key !== inspected);
    if (other === undefined) continue;
    throw new Error(`Look into ${other} for embedded code, as was done for ${inspected} (tools/shipped.ts).`);
  }
  return [...all].toSorted(([a], [b]) => (a < b ? -1 : 1)).map(([, one]) => one);
}

function describePackage(root: string, lock: Lock, place: string): ShippedPackage {
  const { version = "", integrity = "", license, os, cpu } = lock[place] ?? {};
  const name = place.slice(place.lastIndexOf("node_modules/") + "node_modules/".length);
  const key = `${name}@${version}`;
  // A package for some machines is listed from the lock file, so that every machine has the same list.
  const isPlatformSpecific = os !== undefined || cpu !== undefined;
  const installed = isPlatformSpecific ? { version, license } : manifestAt(join(root, place));
  if (installed?.version !== version) {
    throw new Error(`${key} is not installed as package-lock.json has it; run npm ci.`);
  }
  const needs = dependenciesOf(lock[place]).flatMap((needed) => {
    const found = lockKeyOf(lock, place, needed);
    return found === null ? [] : [`${needed}@${lock[found]?.version}`];
  });
  return {
    name,
    version,
    licence: typeof installed.license === "string" ? installed.license : "no licence that it names",
    integrity,
    needs: needs.toSorted(),
    texts: licenceTexts(join(root, isPlatformSpecific ? findDependentOf(lock, name) : place)),
    embedded: EMBEDDED_CODE[key] ?? [],
  };
}

/** npm installs peers. Peers that are not installed are not in the lock file. */
function dependenciesOf(locked: Locked | undefined): readonly string[] {
  return Object.keys({
    ...locked?.dependencies,
    ...locked?.optionalDependencies,
    ...locked?.peerDependencies,
  });
}

/** Key in the lock file of the package that Node.js would find. */
function lockKeyOf(lock: Lock, from: string, name: string): string | null {
  for (let folder = from; ; folder = folder.slice(0, Math.max(0, folder.lastIndexOf("/node_modules/")))) {
    const place = folder === "" ? `node_modules/${name}` : `${folder}/node_modules/${name}`;
    if (place in lock) return place;
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

/** Key of the package that installs this one on some machines; it contains the licence. */
function findDependentOf(lock: Lock, name: string): string {
  const place = Object.keys(lock).find((each) => lock[each]?.optionalDependencies?.[name] !== undefined);
  if (place === undefined) throw new Error(`Nothing in package-lock.json asks for ${name}; run npm install.`);
  return place;
}

/** Some packages have their licence at the end of the README. */
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
