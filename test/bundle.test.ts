import { execFile } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync, statSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, onTestFinished, test, vi } from "vitest";
import { BUNDLE, BUNDLED_MAIN, build, bundle } from "../tools/bundle.ts";
import { testFolder } from "./test-resources.ts";

function project(files: Readonly<Record<string, string>>): { readonly root: string; readonly target: string } {
  const root = testFolder("bundle");
  const all = {
    "package.json": '{"type":"module"}',
    "node_modules/undici/index.js": "module.exports = {};",
    "src/cli/main.ts": "export {};",
    ...files,
  };
  for (const [name, text] of Object.entries(all)) {
    mkdirSync(join(root, name, ".."), { recursive: true });
    writeFileSync(join(root, name), text);
  }
  return { root, target: join(root, "program") };
}

const text = (folder: string, name = BUNDLED_MAIN) => readFileSync(join(folder, name), "utf8");

test("a bundled module still finds the file next to its source, and the bundle contains only ASCII text", async () => {
  const { root, target } = project({
    "src/cli/main.ts": 'export { words } from "../words.ts"; // größer',
    "src/words.ts": `import { readFileSync } from "node:fs";
      export const words: string = readFileSync(new URL("./words.txt", import.meta.url), "utf8") + "Größe ≥ 1 😀" + /^[≥😀]$/u.test("😀");`,
    "src/words.txt": "beside: ",
  });
  await bundle(root, target, "program");
  expect(text(target)).toMatch(/^\p{ASCII}+$/u);
  expect(text(target)).toContain("// src/words.ts");
  const { words } = (await import(join(target, BUNDLED_MAIN))) as { readonly words: string };
  expect(words).toBe("beside: Größe ≥ 1 😀true");
});

test("bundling fails for a module that looks up its own folder, and the error names the package or file", async () => {
  const ofPackage = project({
    "src/cli/main.ts": 'import "reads-files";',
    "node_modules/reads-files/package.json": '{"main":"index.js"}',
    "node_modules/reads-files/index.js": 'require("node:fs").readFileSync(__dirname + "/x");',
  });
  await expect(bundle(ofPackage.root, ofPackage.target, "program")).rejects.toThrow(
    /^reads-files depends on its own path .*: add it to "external"/,
  );
  const ofOurs = project({ "src/cli/main.ts": "console.log(import.meta.dirname);" });
  await expect(bundle(ofOurs.root, ofOurs.target, "program")).rejects.toThrow(/main\.ts uses import\.meta\.dirname/);
  expect(readdirSync(ofOurs.target)).toEqual([]);
});

function leaveFiles(folder: string): void {
  mkdirSync(folder, { recursive: true });
  const dayAgo = Date.now() / 1_000 - 86_400;
  for (const [name, seconds] of [
    ["older.js", dayAgo - 60],
    ["younger.js", dayAgo + 60],
  ] as const) {
    writeFileSync(join(folder, name), "");
    utimesSync(join(folder, name), seconds, seconds);
  }
}

test("the build sets its start time as the bundle's file time and deletes bundle files older than a day", async () => {
  const { root } = project({});
  const compiled = join(root, "node_modules/.cache/plenum/v24-x64");
  for (const folder of [join(root, BUNDLE), compiled]) leaveFiles(folder);
  // Fakes the clock of the program but not of the file system.
  const begun = Date.now() - 5_000;
  vi.useFakeTimers({ now: begun, toFake: ["Date"] });
  onTestFinished(() => void vi.useRealTimers());
  await build(root);
  expect(readdirSync(compiled)).toEqual(["younger.js"]);
  const names = readdirSync(join(root, BUNDLE));
  expect(names).toEqual(expect.arrayContaining([BUNDLED_MAIN, "younger.js"]));
  expect(names).not.toContain("older.js");
  expect(Math.round(statSync(join(root, BUNDLE, BUNDLED_MAIN)).mtimeMs)).toBe(begun);
});

test("the bundle runs with --no-experimental-detect-module, because it declares its module type", async () => {
  const { root } = project({ "src/cli/main.ts": "await 1; console.log('ran');" });
  await build(root);
  const main = join(root, BUNDLE, BUNDLED_MAIN);
  const { stdout } = await promisify(execFile)(process.execPath, ["--no-experimental-detect-module", main]);
  expect(stdout).toBe("ran\n");
});

test("several processes can build the bundle at once", async () => {
  const { root, target } = project({});
  const code = `const { bundle } = await import(${JSON.stringify(join(import.meta.dirname, "../tools/bundle.ts"))});
    for (let n = 0; n < 10; n += 1) await bundle(${JSON.stringify(root)}, ${JSON.stringify(target)}, "program");`;
  const make = () => promisify(execFile)(process.execPath, ["--input-type=module", "-e", code]);
  const made = await Promise.all([make(), make(), make()]);
  expect(made.map(({ stderr }) => stderr)).toEqual(["", "", ""]);
  expect(readdirSync(target).filter((name) => !name.endsWith(".js"))).toEqual([]);
});
