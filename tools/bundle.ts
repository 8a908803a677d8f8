import { existsSync, mkdirSync, readdirSync, renameSync, rmSync, statSync, utimesSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import { type OutputChunk, type Plugin, rolldown } from "rolldown";

/**
 * Bundles Plenum into few files (`npm run build`). Commands of the bundle start in half to two thirds of the processor
 * time, and its worker needs 12 MB less. `./plenum` runs the bundle unless a source is newer.
 */
/** `npm ci` deletes the bundle together with the packages in it. */
export const BUNDLE = "node_modules/.cache/bundle";
export const BUNDLED_MAIN = "main.js";
/** Node.js stores compiled code for `./plenum` here, in a subfolder per version. */
const COMPILE_CACHE = "node_modules/.cache/plenum";

/** Package in a separate file of the bundle, loaded at its first use; see `src/cli/shell/prevent-second-undici.ts`. */
const UNDICI = "undici";

const DAY_MS = 86_400_000;

/** Package that is not bundled, because it reads files from its own folder and has builds for each platform. */
const KAFKA = "@platformatic/kafka";

/** Bundled packages that use their own path only for features that Plenum does not use, such as threads and mocks. */
const PATH_DEPENDENT_PACKAGES = ["node-cron", "pino", "thread-stream", "undici"];

/** Writes the bundle into `target`. `runFolder`: path below the project folder from which the bundle will run. */
export async function bundle(root: string, target: string, runFolder = BUNDLE): Promise<void> {
  const startTime = new Date();
  const build = await rolldown({
    cwd: root,
    input: { main: join(root, "src/cli/main.ts"), [UNDICI]: UNDICI },
    external: [KAFKA],
    platform: "node",
    // The bundle contains the paths of source files as comments, which must not depend on the machine.
    resolve: { symlinks: false },
    plugins: [keepSourcePaths(join(root, runFolder))],
    onLog(_level, { code, message }) {
      // Some packages evaluate generated code, so this warning is not an error.
      if (code !== "EVAL") throw new Error(message);
    },
  });
  const { output } = await build.generate({
    format: "esm",
    comments: false,
    entryFileNames: "[name].js",
    chunkFileNames: "[name]-[hash].js",
  });
  await build.close();
  mkdirSync(target, { recursive: true });
  const chunks = output.filter((each): each is OutputChunk => each.type === "chunk");
  for (const chunk of chunks) rejectPathDependentPackage(chunk);
  // The main file comes last, so a command that starts now finds all others.
  for (const { fileName, code } of chunks.toSorted((a, b) => Number(isMain(a)) - Number(isMain(b)))) {
    // The name contains the process id, because another process may build the same file.
    const temporaryFile = join(target, `${fileName}.${process.pid}`);
    writeFileSync(temporaryFile, escapeNonAscii(code));
    // With the start time, `./plenum` notices sources that changed during the build.
    utimesSync(temporaryFile, startTime, startTime);
    renameSync(temporaryFile, join(target, fileName));
  }
  // Keeps recent files, because a running worker may still load files of its older bundle.
  removeOldFiles(target, new Set(chunks.map(({ fileName }) => fileName)));
}

export async function build(root: string): Promise<void> {
  const target = join(root, BUNDLE);
  mkdirSync(target, { recursive: true });
  // Declares the module type; otherwise Node.js parses every file twice to detect it.
  writeFileSync(join(target, "package.json"), '{"type":"module"}\n');
  await bundle(root, target);
  // Deletes compiled code of older bundles, about 5 MB each; Node.js compiles again what it needs.
  for (const folder of existsSync(join(root, COMPILE_CACHE)) ? readdirSync(join(root, COMPILE_CACHE)) : [])
    removeOldFiles(join(root, COMPILE_CACHE, folder), new Set());
}

/** Deletes files that are older than a day and not in `currentFiles`. */
function removeOldFiles(folder: string, currentFiles: ReadonlySet<string>): void {
  for (const name of readdirSync(folder)) {
    const path = join(folder, name);
    const { mtimeMs = Date.now() } = statSync(path, { throwIfNoEntry: false }) ?? {};
    if (!currentFiles.has(name) && Date.now() - mtimeMs > DAY_MS) rmSync(path, { force: true });
  }
}

const isMain = ({ fileName }: OutputChunk) => fileName === BUNDLED_MAIN;

/** Makes `import.meta.url` point to the original source, because modules look for files in their own folder. */
function keepSourcePaths(folder: string): Plugin {
  return {
    name: "in-place",
    transform: {
      filter: { id: /\.ts$/, code: /import\.meta\.url|require\("undici"\)/ },
      handler(code, id) {
        const relativePath = JSON.stringify(relative(folder, id).replaceAll("\\", "/"));
        const sourceUrl = `new URL(${relativePath}, import.meta.url)`;
        return code
          .replaceAll("import.meta.url", sourceUrl)
          .replaceAll(`createRequire(${sourceUrl})`, "createRequire(import.meta.url)")
          .replaceAll(`require("${UNDICI}")`, `require("./${UNDICI}.js").default`);
      },
    },
  };
}

/** Throws for a module that depends on its own path, because it would not find its files from the bundle. */
function rejectPathDependentPackage({ modules }: OutputChunk): void {
  for (const [id, { code }] of Object.entries(modules)) {
    const [, name] = /.*node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(id.replaceAll("\\", "/")) ?? [];
    if (name === undefined && /import\.meta\.(?:dirname|filename)/.test(code ?? ""))
      throw new Error(`${id} uses import.meta.dirname or import.meta.filename: use import.meta.url.`);
    if (name === undefined || PATH_DEPENDENT_PACKAGES.includes(name)) continue;
    if (/import\.meta\.|__dirname|__filename/.test(code ?? ""))
      throw new Error(`${name} depends on its own path (${id}): add it to "external" in tools/bundle.ts.`);
  }
}

/** Escapes all characters except ASCII, because V8 needs two bytes per character for a text with any beyond Latin-1. */
function escapeNonAscii(code: string): string {
  const escaped = (unit: string) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;
  return code.replaceAll(/\P{ASCII}+/gu, (text) => text.split("").map(escaped).join(""));
}

if (import.meta.main) {
  const root = join(import.meta.dirname, "..");
  const [folder] = process.argv.slice(2);
  await (folder === undefined ? build(root) : bundle(root, join(root, folder), folder));
}
