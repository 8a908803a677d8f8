import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { findLicenceProblems, NOTICES, noticesText } from "../tools/licences.ts";
import { SBOM, sbomText } from "../tools/sbom.ts";
import { shippedPackages } from "../tools/shipped.ts";
import { testFolder } from "./test-resources.ts";

const ROOT = join(import.meta.dirname, "..");
const read = (path: string) => readFileSync(join(ROOT, path), "utf8");
const json = <T>(path: string) => JSON.parse(read(path)) as T;

interface Locked {
  readonly optionalDependencies?: Readonly<Record<string, string>>;
  readonly dev?: boolean;
  readonly link?: boolean;
  readonly integrity?: string;
}
const locked = Object.entries(
  json<{ readonly packages: Readonly<Record<string, Locked>> }>("package-lock.json").packages,
).filter(([place, { link }]) => place.startsWith("node_modules/") && link !== true);

const packages = shippedPackages(ROOT);

describe("shipped packages", () => {
  test("have permitted licences with their texts", () => {
    expect(findLicenceProblems(packages)).toEqual([]);
  });

  test("are all packages that npm installs without development dependencies", () => {
    const names = locked
      .filter(([, { dev }]) => dev !== true)
      .map(([place]) => place.slice(place.lastIndexOf("node_modules/") + "node_modules/".length));
    expect(packages.length).toBeGreaterThan(50);
    expect(new Set(packages.map(({ name }) => name))).toEqual(new Set(names));
  });

  test("the notices have a section with the licence of each package", () => {
    const sections = [...noticesText(ROOT).matchAll(/^## (\S+) (\S+)\n\nLicence: \S/gm)];
    expect(sections.map(([, name]) => name)).toEqual(packages.map(({ name }) => name));
  });

  test("the software bill of materials has each package and refers to no unknown package", () => {
    const { components, dependencies } = JSON.parse(sbomText(ROOT)) as {
      readonly components: readonly Record<string, string>[];
      readonly dependencies: readonly { readonly ref: string; readonly dependsOn: readonly string[] }[];
    };
    expect(components).toHaveLength(packages.length);
    expect(components.map(({ purl }) => purl)).toContain("pkg:npm/%40hono/node-server@2.1.8");
    const known = new Set(dependencies.map(({ ref }) => ref));
    expect(dependencies.flatMap(({ dependsOn }) => dependsOn).filter((ref) => !known.has(ref))).toEqual([]);
  });

  test("the notices and the bill of materials are generated for container and release, and not committed", () => {
    expect(read("Dockerfile")).toMatch(/^RUN .*node tools\/licences\.ts && node tools\/sbom\.ts$/m);
    for (const name of [NOTICES, SBOM]) {
      expect(read("Dockerfile")).toMatch(new RegExp(`^COPY --from=program .*${name.replaceAll(".", "\\.")}`, "m"));
      expect(read(".gitignore").split("\n")).toContain(name);
    }
  });
});

describe("a new dependency", () => {
  const text = { LICENSE: "Permission is hereby granted" };

  test.each<[string, Record<string, unknown>, Record<string, string>, RegExp | null]>([
    ["an allowed licence", { license: "ISC" }, text, null],
    ["a choice with one allowed licence", { license: "(GPL-3.0-only OR MIT)" }, text, null],
    ["two allowed licences", { license: "MIT AND BSD-3-Clause" }, text, null],
    [
      "an allowed and a forbidden licence",
      { license: "MIT AND GPL-3.0-only" },
      text,
      /^new 1\.0\.0 has the licence MIT AND/,
    ],
    [
      "a forbidden licence",
      { license: "AGPL-3.0-only" },
      text,
      /^new 1\.0\.0 has the licence AGPL-3\.0-only, which is not/,
    ],
    ["no licence", {}, text, /^new 1\.0\.0 has the licence unknown, which is not/],
    ["a reference to a file", { license: "SEE LICENSE IN LICENSE" }, text, /^new 1\.0\.0 has the licence SEE LICENSE/],
    ["no licence text", { license: "MIT" }, {}, /^new 1\.0\.0 contains no licence text/],
  ])("is accepted or rejected by its licence: %s", (_what, manifest, files, words) => {
    const folder = projectWith(manifest, files);
    expect(findLicenceProblems(shippedPackages(folder))).toEqual(words === null ? [] : [expect.stringMatching(words)]);
  });

  test("is reported if the installed version is not the locked version", () => {
    expect(() => shippedPackages(projectWith({ version: "1.0.1" }, text))).toThrow(
      "The installed new differs from new@1.0.0 in package-lock.json; run npm ci.",
    );
  });

  test("packages with embedded third-party code are reviewed for each version", () => {
    const another = projectWith({ license: "MIT" }, text, "htm");
    expect(() => shippedPackages(another)).toThrow("Inspect htm@1.0.0 for embedded code");
    expect(packages.flatMap(({ embedded }) => embedded.map(({ name }) => name))).toEqual(["preact"]);
  });

  function projectWith(manifest: object, files: Readonly<Record<string, string>>, name = "new"): string {
    const folder = testFolder("dependencies");
    mkdirSync(join(folder, "node_modules", name), { recursive: true });
    const lock = {
      packages: { "": { dependencies: { [name]: "1.0.0" } }, [`node_modules/${name}`]: { version: "1.0.0" } },
    };
    writeFileSync(join(folder, "package-lock.json"), JSON.stringify(lock));
    const all = { "package.json": JSON.stringify({ name, version: "1.0.0", ...manifest }), ...files };
    for (const [file, content] of Object.entries(all)) writeFileSync(join(folder, "node_modules", name, file), content);
    return folder;
  }
});

describe("installed packages", () => {
  test.each(["package.json", "tools/runtime/package.json"])("have exact versions in %s", (file) => {
    const { dependencies, devDependencies, optionalDependencies } =
      json<Readonly<Record<string, Readonly<Record<string, string>>>>>(file);
    const all = Object.entries({ ...dependencies, ...devDependencies, ...optionalDependencies });
    expect(all.length).toBeGreaterThan(5);
    expect(
      all.filter(([, version]) => !/^(\d+\.\d+\.\d+(-r\.\d+)?|file:tools\/runtime)$/.test(version)),
      "Write the exact version, such as 1.2.3, without ^ or ~.",
    ).toEqual([]);
  });

  test("are in the lock file for every platform, as npm 11 requires", () => {
    const places = new Set(locked.map(([place]) => place));
    const wanted = locked.flatMap(([place, { optionalDependencies = {} }]) =>
      Object.keys(optionalDependencies).map((name) => ({ name, nested: `${place}/node_modules/${name}` })),
    );
    expect(wanted.length).toBeGreaterThan(5);
    expect(
      wanted.filter(({ name, nested }) => !places.has(`node_modules/${name}`) && !places.has(nested)),
      "A version lacks bindings of some platform in the registry: take one that has all.",
    ).toEqual([]);
  });

  test("have a sha512 hash in the lock file", () => {
    const without = locked.filter(([, { integrity }]) => !/^sha512-/.test(integrity ?? ""));
    expect(without.map(([place]) => place)).toEqual([]);
  });
});
