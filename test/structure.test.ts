import { execFileSync, spawnSync } from "node:child_process";
import { readdirSync } from "node:fs";
import { basename, join } from "node:path";
import { describe, expect, test } from "vitest";
import packages from "#src/packages.json" with { type: "json" };
import slow from "./slow.json" with { type: "json" };
import { importsIn, importsOfAll, pages, programs, testPrograms, textOf } from "./structure/imports.ts";
import { type Package, unused, violations } from "./structure/packages.ts";
import { SIZE_LIMITS, type Sizes, sizesToday, smallFilesWithOneImporter } from "./structure/sizes.ts";

const imports = importsOfAll();
const files = programs();

describe("imports of the sources", () => {
  test("are all permitted by src/packages.json", () => {
    expect(files.length).toBeGreaterThan(300);
    expect(violations(packages, imports)).toEqual([]);
  });

  test("use every permission in src/packages.json", () => {
    expect(unused(packages, imports)).toEqual([]);
  });

  test("contain no cycle", () => {
    const done = new Set<string>();
    const visit = (file: string, trail: readonly string[]): void => {
      expect(trail, `a circle of imports: ${[...trail, file].join(" → ")}`).not.toContain(file);
      if (done.has(file)) return;
      for (const target of imports.get(file) ?? []) visit(target, [...trail, file]);
      done.add(file);
    };
    for (const file of files) visit(file, []);
  });

  test.each([
    ["src/core/model/event.ts", "src/core/runtime/clock.ts"],
    ["src/core/values/duration.ts", "src/core/errors/errors.ts"],
    ["src/core/runtime/waiting.ts", "src/engine/store/store.ts"],
    ["src/engine/store/outbox.ts", "src/engine/source/source.ts"],
    ["src/engine/sync/sync.ts", "src/engine/delivery/dispatcher.ts"],
    ["src/engine/sync/plan/next-read-group.ts", "src/engine/store/store.ts"],
    ["src/engine/commands/commands.ts", "mqtt"],
    ["src/engine/source/client.ts", "node:sqlite"],
    ["src/engine/delivery/batches.ts", "connectors/mqtt/sink.ts"],
    ["connectors/mqtt/sink.ts", "src/engine/store/store.ts"],
    ["connectors/mqtt/sink.ts", "connectors/influxdb/sink.ts"],
    ["connectors/influxdb/sink.ts", "undici"],
    ["src/ui/status/status-server.ts", "src/app/worker.ts"],
    ["src/ui/status/page/app.mjs", "src/core/values/duration.ts"],
    ["src/app/worker.ts", "src/cli/running/run-command.ts"],
    ["src/app/build-sinks.ts", "connectors/mqtt/sink.ts"],
    ["src/scale/fleet-member.ts", "connectors/mqtt/sink.ts"],
    ["src/simulator/server.ts", "src/core/errors/errors.ts"],
  ])("%s must not import %s", (file, target) => {
    expect(violations(packages, new Map([[file, [target]]]))).toHaveLength(1);
  });

  test("the table of packages in src/README.md names each package once", () => {
    const rows = [...textOf("src/README.md").matchAll(/^\| `([^`]+)` \|/gm)].map((row) => row[1] ?? "");
    const paths = rows.map((path) => (path.startsWith("connectors") ? path : `src/${path}`));
    const named = (path: string) => paths.filter((row) => row === path || path.startsWith(`${row}/`));
    const missing = packages.filter(({ package: path }) => named(path).length === 0);
    expect(missing.map(({ package: path }) => path)).toEqual([]);
    expect(new Set(paths).size).toBe(paths.length);
    expect(paths.filter((path) => !packages.some((one) => `${one.package}/`.startsWith(`${path}/`)))).toEqual([]);
  });
});

describe("the rules in src/packages.json", () => {
  const small: readonly Package[] = [
    { package: "src/shop", imports: ["src/base"], libraries: ["node:*"] },
    { package: "src/shop/till", imports: [], libraries: ["node:sqlite"] },
    { package: "src/base", imports: [], libraries: [] },
  ];
  const problems = (file: string, target: string) => violations(small, new Map([[file, [target]]]));

  test("permit a package to import its own files and all files below a listed path", () => {
    expect(problems("src/shop/a.ts", "src/shop/shelf/b.ts")).toEqual([]);
    expect(problems("src/shop/a.ts", "src/base/deep/b.ts")).toEqual([]);
    expect(problems("src/shop/a.ts", "node:fs/promises")).toEqual([]);
  });

  test("treat a package inside another as a separate package, in both directions", () => {
    expect(problems("src/shop/a.ts", "src/shop/till/b.ts")).toEqual([]);
    expect(problems("src/shop/till/b.ts", "src/shop/a.ts")).toHaveLength(1);
    expect(problems("src/shop/a.ts", "node:sqlite")).toHaveLength(1);
  });

  test("a file without a package is reported", () => {
    expect(problems("src/flat.ts", "src/base/a.ts")).toEqual(["src/flat.ts is in no package of src/packages.json."]);
  });

  test("an unused permission is reported", () => {
    const graph = new Map([
      ["src/shop/a.ts", ["node:fs"]],
      ["src/shop/till/b.ts", ["node:sqlite"]],
      ["src/base/c.ts", []],
    ]);
    expect(unused(small, graph)).toEqual(["src/shop no longer imports src/base."]);
  });

  test("cover every form of import, and ignore strings", () => {
    const text = `import type { A } from "./a.ts";
import {
  b,
  type C,
} from "../b.ts";
import "#src/core/runtime/clock.ts";
export { d } from "./d.ts";
const e = await import("./e.ts");
let f: import("./f.ts").F;
import g from "mqtt";
// import from "./nowhere.ts"
const h = [{ title: "from", value: (x) => x.from }, { title: "to" }];`;
    expect(importsIn("src/shop/file.ts", text).toSorted()).toEqual(
      [
        "mqtt",
        ...["a", "d", "e", "f"].map((name) => `src/shop/${name}.ts`),
        "src/b.ts",
        "src/core/runtime/clock.ts",
      ].toSorted(),
    );
  });
});

test.each([
  ["README.md", 900],
  ["src/README.md", 1_500],
])("%s has at most %i words", (file, maxWords) => {
  expect(textOf(file).split(/\s+/).length).toBeLessThanOrEqual(maxWords);
});

describe("the paths of data in docs/data-paths.md", () => {
  const sections = textOf("docs/data-paths.md").split("\n## ");

  test.each([
    ["A live value", 20],
    ["A read interval", 9],
    ["A history bucket", 24],
    ["An alarm", 35],
  ])("%s: names existing files, at most %i, and states how many there are", (heading, maxFiles) => {
    const section = sections.find((text) => text.startsWith(`${heading}\n`)) ?? "";
    const steps = [...section.matchAll(/^\| [\d–]+ \| ([^|]+) \|/gm)];
    const named = steps.flatMap((step) => [...(step[1] ?? "").matchAll(/`([^`]+)`/g)].map((name) => name[1]));
    const fileOf = (name = "") => `${name.startsWith("connectors/") ? "" : "src/"}${name}.ts`;
    expect(named.filter((name) => !files.includes(fileOf(name)))).toEqual([]);
    expect(new Set(named).size).toBe(named.length);
    expect(named.length).toBeLessThanOrEqual(maxFiles);
    expect(section).toContain(`${named.length} files`);
    const lastNumber = steps.at(-1)?.[0].match(/\d+(?= \|)/)?.[0];
    expect(Number(lastNumber)).toBe(named.length);
  });
});

describe("source files", () => {
  test("have specific names in lower case", () => {
    const vague = /\/(utils?|helpers?|common|misc|types|index|manager|handler|service|processor)\.ts$/;
    expect(files.filter((file) => vague.test(file))).toEqual([]);
    expect(files.filter((file) => !/^[a-z0-9./-]+$/.test(file))).toEqual([]);
  });

  test("are all in a package", () => {
    const entries = readdirSync(join(import.meta.dirname, "../src"), { withFileTypes: true });
    const outside = entries.filter((entry) => entry.isFile()).map(({ name }) => name);
    expect(outside.toSorted()).toEqual(["README.md", "packages.json"]);
  });

  test("have no TODOs, no swallowed errors and at most 450 lines", () => {
    for (const file of files) {
      const text = textOf(file);
      expect(text, file).not.toMatch(/\b(TODO|FIXME|XXX|HACK)\b/);
      expect(text, file).not.toMatch(/\.catch\(\(\) => \{\}\)/);
      expect(text.split("\n").length, `${file} has more than 450 lines`).toBeLessThanOrEqual(450);
    }
  });
});

describe("test/slow.json", () => {
  const testFiles = testPrograms().filter((file) => file.endsWith(".test.ts"));
  const isListedAs = (entry: string, file: string) => (entry.endsWith("/") ? file.startsWith(entry) : file === entry);

  test("lists only existing test files and folders", () => {
    expect(slow.filter((entry) => !testFiles.some((file) => isListedAs(entry, file)))).toEqual([]);
  });

  test("lists no file twice and is sorted", () => {
    const entriesOf = (file: string) => slow.filter((entry) => isListedAs(entry, file));
    expect(testFiles.filter((file) => entriesOf(file).length > 1)).toEqual([]);
    expect(slow).toEqual(slow.toSorted());
  });

  test.runIf(process.env.PLENUM_FAST === "1")("a fast test can start no process but git", () => {
    expect(() => spawnSync("true")).toThrow("test/slow.json");
    expect(execFileSync("git", ["--version"], { encoding: "utf8" })).toMatch(/^git version/);
  });

  test("more than half of the test files are fast", () => {
    const fast = testFiles.filter((file) => !slow.some((entry) => isListedAs(entry, file)));
    expect(fast.length).toBeGreaterThan(testFiles.length / 2);
  });
});

test("tests do not limit measured durations: use test/effort.ts or virtual time", () => {
  const measured = /expect\([^;]*(?:performance|Date)\.now\(\) -[^;]*\.toBeLessThan/;
  const tests = testPrograms().filter((file) => file !== "test/structure.test.ts");
  expect(tests.filter((file) => measured.test(textOf(file)))).toEqual([]);
});

describe("the size of the code base", () => {
  const sizes = sizesToday();
  const names = Object.keys(SIZE_LIMITS) as (keyof Sizes)[];

  test.each(names)("does not exceed the limit of %s", (name) => {
    const message = `The limit of ${name} is in test/structure/sizes.ts. Merge files or delete what few users need.`;
    expect(sizes[name], message).toBeLessThanOrEqual(SIZE_LIMITS[name]);
  });

  test("smallFilesWithOneImporter returns files below 60 lines that one other file imports", () => {
    const graph = new Map([
      ["src/a.ts", ["src/b.ts", "src/c.ts", "src/d.ts"]],
      ["src/b.ts", ["src/c.ts", "node:fs"]],
      ["src/c.ts", []],
      ["src/d.ts", []],
    ]);
    expect(smallFilesWithOneImporter(graph, (file) => (file === "src/d.ts" ? 60 : 59))).toEqual(["src/b.ts"]);
  });
});

describe("unused code", () => {
  test("every source file but the entry points is imported", () => {
    const imported = new Set([...imports.values()].flat());
    const naming = [...pages(), ...files].map((file) => ({ file, text: textOf(file) }));
    const isLoaded = (file: string) =>
      file.includes("/page/") && naming.some((other) => other.file !== file && other.text.includes(basename(file)));
    const isEntry = (file: string) => file === "src/cli/main.ts" || isLoaded(file);
    expect(files.filter((file) => !imported.has(file) && !isEntry(file))).toEqual([]);
  });

  test("every export is used in another file, or a type in another export of its file", () => {
    const wordsIn = new Map([...files, ...testPrograms()].map((file) => [file, countWords(textOf(file))]));
    const filesWith = new Map<string, number>();
    for (const words of wordsIn.values())
      for (const word of words.keys()) filesWith.set(word, (filesWith.get(word) ?? 0) + 1);
    const declared = /^export (?:async )?(const|let|class|function\*?|type|interface) (\w+)/gm;
    const dead = files.flatMap((file) =>
      [...textOf(file).matchAll(declared)].flatMap(([, kind, name = ""]) => {
        const isType = kind === "type" || kind === "interface";
        const isUsed = (filesWith.get(name) ?? 0) > 1 || (isType && (wordsIn.get(file)?.get(name) ?? 0) > 1);
        return isUsed ? [] : [`${file}: ${name}`];
      }),
    );
    expect(dead).toEqual([]);
  });
});

function countWords(text: string): ReadonlyMap<string, number> {
  const counts = new Map<string, number>();
  for (const [word] of text.matchAll(/\w+/g)) counts.set(word, (counts.get(word) ?? 0) + 1);
  return counts;
}
