import { readdirSync, readFileSync, statSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { describe, expect, test } from "vitest";

/** The rules that matter are programs: this walks the code and enforces the table of src/README.md. */
const root = join(import.meta.dirname, "..");

const BASE = [
  "backoff",
  "building",
  "clock",
  "errors",
  "event",
  "lifecycle",
  "log",
  "metrics",
  "secret",
  "tls-trouble",
  "duration",
  "retry-after",
  "waiting",
].map((name) => `src/${name}.ts`);

/** Room → what it may import besides itself and the base. A prefix stands for a folder or one file. */
const MAY_IMPORT: Readonly<Record<string, readonly string[]>> = {
  "src/connector.ts": [],
  "src/source": ["src/store/store.ts"],
  "src/store": [],
  "src/sync": ["src/source/source.ts", "src/store/store.ts"],
  "src/commands": ["src/connector.ts", "src/source/source.ts", "src/store/store.ts", "src/sync/snapshot.ts"],
  "src/delivery": ["src/connector.ts", "src/store/store.ts"],
  "src/status": [
    "src/source/source.ts",
    "src/store/store.ts",
    "src/sync/snapshot.ts",
    "src/sync/plan/report.ts",
  ],
  "src/simulator": [],
  "connectors/": ["src/connector.ts"],
};

const files = [...walk("src"), ...walk("connectors")].filter((file) => file.endsWith(".ts"));

function* walk(folder: string): Generator<string> {
  for (const name of readdirSync(join(root, folder))) {
    const path = `${folder}/${name}`;
    if (statSync(join(root, path)).isDirectory()) yield* walk(path);
    else yield path;
  }
}

function imports(file: string): readonly string[] {
  const text = readFileSync(join(root, file), "utf8");
  return [...text.matchAll(/(?:from|import\()\s*"([^"]+)"/g)].map((match) => match[1] ?? "");
}

function ownImports(file: string): readonly string[] {
  return imports(file)
    .filter((name) => name.startsWith(".") || name.startsWith("#"))
    .map((name) => (name.startsWith("#") ? name.slice(1) : relative(root, join(root, dirname(file), name))));
}

function roomOf(file: string): string | undefined {
  if (file.startsWith("connectors/") && file.split("/").length > 2) return "connectors/";
  return Object.keys(MAY_IMPORT).find((room) => file === room || file.startsWith(`${room}/`));
}

describe("the rooms import downwards only", () => {
  test.each(files)("%s", (file) => {
    const room = roomOf(file);
    for (const target of ownImports(file)) {
      if (BASE.includes(file)) {
        expect(BASE, `${file} is base and imports ${target}`).toContain(target);
        continue;
      }
      if (room === undefined) continue; // config, cli, demo, worker and the catalogue compose; they may know all.
      if (BASE.includes(target) && room !== "src/simulator") continue;
      const own = room === "connectors/" ? `${file.split("/").slice(0, 2).join("/")}/` : room;
      const allowed = [own, ...(MAY_IMPORT[room] ?? [])];
      expect(
        allowed.some((prefix) => target === prefix || target.startsWith(prefix)),
        `${file} may not import ${target}`,
      ).toBe(true);
    }
  });

  test("one importer of each foreign thing", () => {
    const importersOf = (module: string) => files.filter((file) => imports(file).includes(module));
    for (const file of importersOf("node:sqlite")) expect(file).toMatch(/^src\/store\//);
    for (const file of importersOf("node-cron")) expect(file).toBe("src/sync/schedule.ts");
    for (const file of importersOf("undici"))
      expect(file).toMatch(/^(src\/source|connectors\/webhook|src\/cli)\//);
    for (const file of importersOf("p-queue")) expect(file).toMatch(/^src\/source\//);
    for (const file of importersOf("mqtt")) expect(file).toMatch(/^connectors\/mqtt\//);
  });

  test("the pure files of sync know nouns and events only", () => {
    const pure = files.filter((file) => /^src\/sync\/(plan\/|[a-z]+\/diff)/.test(file));
    expect(pure.length).toBeGreaterThan(8);
    for (const file of pure) {
      for (const target of ownImports(file)) expect(target, file).not.toMatch(/^src\/(source|store)\//);
    }
  });

  test("no import runs in a circle", () => {
    const graph = new Map(files.map((file) => [file, ownImports(file)]));
    const done = new Set<string>();
    const visit = (file: string, trail: readonly string[]): void => {
      expect(trail, `a circle of imports: ${[...trail, file].join(" → ")}`).not.toContain(file);
      if (done.has(file)) return;
      for (const target of graph.get(file) ?? []) visit(target, [...trail, file]);
      done.add(file);
    };
    for (const file of files) visit(file, []);
  });
});

describe("the files keep the house rules", () => {
  test("names say something", () => {
    const vague = /\/(utils?|helpers?|common|misc|types|index|manager|handler|service|processor)\.ts$/;
    expect(files.filter((file) => vague.test(file))).toEqual([]);
    expect(files.filter((file) => !/^[a-z0-9./-]+$/.test(file))).toEqual([]);
  });

  test("nothing is left open, and no file is a god", () => {
    for (const file of files) {
      const text = readFileSync(join(root, file), "utf8");
      expect(text, file).not.toMatch(/\b(TODO|FIXME|XXX|HACK)\b/);
      expect(text, file).not.toMatch(/\.catch\(\(\) => \{\}\)/);
      expect(text.split("\n").length, `${file} has grown crowded`).toBeLessThanOrEqual(420);
    }
  });
});
