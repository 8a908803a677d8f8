/** One row of `src/packages.json`. Paths are relative to the root of the project. */
export interface Package {
  readonly package: string;
  /** Files and folders, with everything below them. A package may always import its own files. */
  readonly imports: readonly string[];
  /** Libraries. `node:*` is every module of Node.js except the database. */
  readonly libraries: readonly string[];
}

/** Imports by file: files relative to the root of the project, and names of libraries. */
export type Imports = ReadonlyMap<string, readonly string[]>;

/** One message for each file without a package and for each import that is not permitted. */
export function violations(packages: readonly Package[], imports: Imports): readonly string[] {
  return [...imports].flatMap(([file, targets]) => {
    const home = packageOf(packages, file);
    if (home === undefined) return [`${file} is in no package of src/packages.json.`];
    return targets
      .filter((target) => permissions(home, target).length === 0)
      .map((target) => `${file} imports ${target}, which src/packages.json does not allow for ${home.package}.`);
  });
}

/** One message for each package without files and for each permission that no import uses. */
export function unused(packages: readonly Package[], imports: Imports): readonly string[] {
  const used = new Map(packages.map((one) => [one, new Set<string>()]));
  for (const [file, targets] of imports) {
    const home = packageOf(packages, file);
    if (home === undefined) continue;
    for (const target of [...targets, file])
      for (const permission of permissions(home, target)) used.get(home)?.add(permission);
  }
  return packages.flatMap((one) =>
    [one.package, ...one.imports, ...one.libraries]
      .filter((permission) => used.get(one)?.has(permission) !== true)
      .map((permission) =>
        permission === one.package ? `${one.package} has no file.` : `${one.package} no longer imports ${permission}.`,
      ),
  );
}

/** The package with the longest path that contains the file. */
function packageOf(packages: readonly Package[], file: string): Package | undefined {
  return packages
    .filter((one) => contains(one.package, file))
    .reduce<Package | undefined>(
      (best, one) => (best === undefined || one.package.length > best.package.length ? one : best),
      undefined,
    );
}

/** The entries of the package that permit the import. */
function permissions(home: Package, target: string): readonly string[] {
  if (/^(src|connectors)\//.test(target))
    return [home.package, ...home.imports].filter((path) => contains(path, target));
  return home.libraries.filter((name) =>
    name === "node:*" ? target.startsWith("node:") && target !== "node:sqlite" : contains(name, target),
  );
}

function contains(path: string, file: string): boolean {
  return file === path || file.startsWith(`${path}/`);
}
