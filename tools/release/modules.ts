import { cpSync, lstatSync, readdirSync, readFileSync } from "node:fs";
import { join, relative, sep } from "node:path";
import { shippedPackages } from "../shipped.ts";

/** Copies the packages that Plenum needs, without types, source maps, tests, examples and pages. Licences stay. */

interface Locked {
  readonly dev?: boolean;
  readonly link?: boolean;
  readonly devDependencies?: unknown;
}

export interface Lock {
  readonly packages: Readonly<Record<string, Locked>>;
}

export function shippedEntries(lock: Lock): readonly [packagePath: string, locked: Locked][] {
  const isShipped = ([packagePath, { dev, link }]: [string, Locked]) =>
    packagePath.startsWith("node_modules/") && dev !== true && link !== true;
  return Object.entries(lock.packages).filter(isShipped);
}

const NEVER_RUN_FILES = [
  /\.(ts|mts|cts|tsx|map|flow|md|markdown|yml|tgz|html|css|coffee|lock)$/i,
  /(^|\/)(\.[^/]+|__tests__|tests?|examples?|benchmarks?|bench|coverage)(\/|$)/,
  /(^|\/)tsconfig[^/]*\.json$/,
];

/** Packages and folders of packages that Plenum does not load, such as sources and builds for browsers. */
const UNUSED_PATHS: readonly RegExp[] = [
  /^@types\//,
  /^zod\/src(\/|$)/,
  /^luxon\/(src|build\/(amd|global|cjs-browser|node))(\/|$)/,
  /^mqtt\/dist(\/|$)/,
  /^htm\/dist(\/|$)/,
  /^bintrees\/(dist|node_modules)(\/|$)/,
  /^protobufjs\/(dist|bin|cli)(\/|$)/,
  /^ajv\/lib(\/|$)/,
  /^@influxdata\/influxdb-client\/dist\/.*browser/,
];

const LICENCE = /(^|\/)(licen[cs]e|copying|notice)(\.\w+)?$/i;

export function copyModules(root: string, target: string): void {
  shippedPackages(root);
  const lock = JSON.parse(readFileSync(join(root, "package-lock.json"), "utf8")) as Lock;
  const from = join(root, "node_modules");
  const packagePaths = shippedEntries(lock).map(([packagePath]) => packagePath.slice("node_modules/".length));
  for (const packagePath of packagePaths) {
    if (!isInstalled(join(from, packagePath)) || UNUSED_PATHS.some((pattern) => pattern.test(`${packagePath}/`)))
      continue;
    cpSync(join(from, packagePath), join(target, packagePath), {
      recursive: true,
      filter: (path) => isNeeded(relative(from, path).replaceAll(sep, "/"), packagePath),
    });
  }
}

function isNeeded(path: string, packagePath: string): boolean {
  const inPackage = path.slice(packagePath.length);
  if (inPackage === "") return true;
  if (inPackage.includes("/node_modules")) return false;
  if (LICENCE.test(path)) return true;
  return !NEVER_RUN_FILES.some((pattern) => pattern.test(inPackage)) && !UNUSED_PATHS.some((one) => one.test(path));
}

/** False for a platform package of another platform. */
function isInstalled(path: string): boolean {
  return lstatSync(path, { throwIfNoEntry: false }) !== undefined;
}

/** Returns the size of each package in bytes, the largest first. */
export function packageSizes(modules: string): readonly (readonly [name: string, bytes: number])[] {
  const all = new Map<string, number>();
  for (const entry of readdirSync(modules, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue;
    const path = join(entry.parentPath, entry.name);
    const [, name = ""] = /^((?:@[^/]+\/)?[^/]+)/.exec(relative(modules, path).replaceAll(sep, "/")) ?? [];
    all.set(name, (all.get(name) ?? 0) + lstatSync(path).size);
  }
  return [...all].toSorted(([, a], [, b]) => b - a);
}
