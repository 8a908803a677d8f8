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

/** A file of its own, because it loads at the first use; see `src/cli/shell/prevent-second-undici.ts`. */
const UNDICI = "undici";

const DAY_MS = 86_400_000;

/** Stays a package: it reads files of its own, and has parts built for one platform. */
const KAFKA = "@platformatic/kafka";

/** Packages that use their own path for features that Plenum does not use, such as threads and mocks. */
const PATH_DEPENDENT_PACKAGES = ["node-cron", "pino", "thread-stream", "undici"];

/** Writes the bundle into `target`. It runs from the folder `at` of a copy of the project, next to `src` and `config`. */
export async function bundle(root: string, target: string, at = BUNDLE): Promise<void> {
  const startTime = new Date();
  const build = await rolldown({
    cwd: root,
    input: { main: join(root, "src/cli/main.ts"), [UNDICI]: UNDICI },
    external: [KAFKA],
    platform: "node",
    // Names of source files are comments in the bundle and must not depend on the machine.
    resolve: { symlinks: false },
    plugins: [keepSourcePaths(join(root, at))],
    onLog(_level, { code, message }) {
      // A package may evaluate code that it generates.
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
    // Other processes may build the same file.
    const unfinished = join(target, `${fileName}.${process.pid}`);
    writeFileSync(unfinished, escapeBeyondLatin1(code));
    // A source that was changed during the build is newer than the bundle.
    utimesSync(unfinished, startTime, startTime);
    renameSync(unfinished, join(target, fileName));
  }
  // A running older bundle still loads some of its files.
  removeOldFiles(target, new Set(chunks.map(({ fileName }) => fileName)));
}

export async function build(root: string): Promise<void> {
  const target = join(root, BUNDLE);
  mkdirSync(target, { recursive: true });
  // Without a type, Node.js would parse every file once more to find out.
  writeFileSync(join(target, "package.json"), '{"type":"module"}\n');
  await bundle(root, target);
  // Each bundle has its own compiled code, some 5 MB, which Node.js creates again when needed.
  for (const folder of existsSync(join(root, COMPILE_CACHE)) ? readdirSync(join(root, COMPILE_CACHE)) : [])
    removeOldFiles(join(root, COMPILE_CACHE, folder), new Set());
}

/** Removes files that are older than a day. */
function removeOldFiles(folder: string, currentFiles: ReadonlySet<string>): void {
  for (const name of readdirSync(folder)) {
    const path = join(folder, name);
    const { mtimeMs = Date.now() } = statSync(path, { throwIfNoEntry: false }) ?? {};
    if (!currentFiles.has(name) && Date.now() - mtimeMs > DAY_MS) rmSync(path, { force: true });
  }
}

const isMain = ({ fileName }: OutputChunk) => fileName === BUNDLED_MAIN;

/** Keeps `import.meta.url` of each source, because modules look for files in their own folder. */
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

/** A package in the bundle would not find the files in its own folder. */
function rejectPathDependentPackage({ modules }: OutputChunk): void {
  for (const [id, { code }] of Object.entries(modules)) {
    const [, name] = /.*node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(id.replaceAll("\\", "/")) ?? [];
    if (name === undefined && /import\.meta\.(?:dirname|filename)/.test(code ?? ""))
      throw new Error(`${id} says where it lies by import.meta.dirname: say it by import.meta.url.`);
    if (name === undefined || PATH_DEPENDENT_PACKAGES.includes(name)) continue;
    if (/import\.meta\.|__dirname|__filename/.test(code ?? ""))
      throw new Error(`${name} looks for files beside its own (${id}): name it as external in tools/bundle.ts.`);
  }
}

/** V8 stores a text with any character beyond Latin-1 in two bytes per character, so this escapes those characters. */
function escapeBeyondLatin1(code: string): string {
  const escaped = (unit: string) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;
  return code.replaceAll(/\P{ASCII}+/gu, (text) => text.split("").map(escaped).join(""));
}

if (import.meta.main) {
  const root = join(import.meta.dirname, "..");
  const [at] = process.argv.slice(2);
  await (at === undefined ? build(root) : bundle(root, join(root, at), at));
}
