import { spawnSync } from "node:child_process";
import { cpSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { buildManualPage } from "../../src/cli/manual/man-and-schema-commands.ts";
import { RELEASE_VERSION } from "../../src/core/runtime/version.ts";
import { completeProgram } from "../../test/cli/complete-program.ts";
import { bundle } from "../bundle.ts";
import { NOTICES, noticesText } from "../licences.ts";
import { SBOM, sbomText } from "../sbom.ts";
import { type Lock, shippedEntries } from "./modules.ts";

/** Writes the content of the npm package: bundle (Node.js runs no TypeScript below `node_modules`), pages and documents. */

/** Files and folders in the npm package. `config` is listed file by file, because developers may keep passwords there. */
const COPIED_FILES = [
  "CHANGELOG.md",
  "README.md",
  "SECURITY.md",
  "config/demo.yaml",
  "config/example.yaml",
  "config/schema.json",
  "docs",
  "packages/README.md",
  "packages/grafana",
  "packages/helm",
  "packages/prometheus",
  "packages/systemd",
  "tools/host.cjs",
  "tools/start.cjs",
];

const MANUAL_FILE = "docs/plenum.1";

const BIN = { plenum: "tools/start.cjs" };

/** tools/start.cjs and the Dockerfile name this folder too. */
const PROGRAM = "program";

/** True for web pages, images and data; false for program files and notes for developers. */
const isAsset = (path: string) => !path.endsWith(".ts") && !/(^|[/\\])src[/\\]README\.md$/.test(path);

/** Writes the npm package's files into the empty folder `target`. `commit` is null if it is unknown. */
export async function writeProgram(root: string, target: string, commit: string | null): Promise<void> {
  await bundle(root, join(target, PROGRAM), PROGRAM);
  for (const folder of ["src", "connectors"]) {
    cpSync(join(root, folder), join(target, folder), { recursive: true, filter: (path) => isAsset(path) });
  }
  for (const path of COPIED_FILES) cpSync(join(root, path), join(target, path), { recursive: true });
  writeFileSync(join(target, NOTICES), noticesText(root));
  writeFileSync(join(target, SBOM), sbomText(root));
  writeFileSync(join(target, MANUAL_FILE), await manualText());
  const manifest = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
  writeJson(join(target, "package.json"), shippedManifest(manifest, commit));
  const lock = JSON.parse(readFileSync(join(root, "package-lock.json"), "utf8"));
  writeJson(join(target, "npm-shrinkwrap.json"), shippedLock(lock));
}

async function manualText(): Promise<string> {
  return `${buildManualPage(await completeProgram(), RELEASE_VERSION).join("\n")}\n`;
}

function shippedManifest(manifest: Readonly<Record<string, unknown>>, commit: string | null) {
  const { name, version, description, license, type, engines, dependencies } = manifest;
  const gitHead = commit === null ? {} : { gitHead: commit };
  return { name, version, ...gitHead, description, license, type, engines, bin: BIN, dependencies };
}

/** Lock file that pins all shipped packages to the tested versions. */
function shippedLock(lock: Lock) {
  const { devDependencies: _, ...own } = lock.packages[""] ?? {};
  return { ...lock, packages: { "": { ...own, bin: BIN }, ...Object.fromEntries(shippedEntries(lock)) } };
}

function writeJson(path: string, value: unknown): void {
  writeFileSync(path, `${JSON.stringify(value, null, 2)}\n`);
}

/** Packs `folder` and returns the file name in `target`. Reproducible, because npm sets the same time for every file. */
export function packProgram(folder: string, target: string): string {
  const args = ["pack", "--json", "--ignore-scripts", "--pack-destination", target];
  const { status, stdout, stderr } = spawnSync("npm", args, { cwd: folder, encoding: "utf8" });
  if (status !== 0) throw new Error(`npm pack failed:\n${stderr}`);
  const packedFile = readdirSync(target).find((name) => name.endsWith(".tgz"));
  if (packedFile === undefined) throw new Error(`npm pack wrote no file:\n${stdout}`);
  return basename(packedFile);
}
