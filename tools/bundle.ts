import { existsSync, mkdirSync, readdirSync, renameSync, rmSync, statSync, utimesSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import { type OutputChunk, type Plugin, rolldown } from "rolldown";

/**
 * Bundles Plenum into few files (`npm run build`): its sources and the packages that it loads, without types, comments and
 * unused code. Commands of the bundle start in half to two thirds of the processor time, and its worker needs some 12 MB
 * less, because Node.js keeps the text of each file and some kilobytes for each module. `./plenum` runs the bundle unless a
 * source is newer; a release and the container image always run it.
 */

/** Folder where `./plenum` looks for the bundle; `npm ci` deletes it together with the packages in it. */
export const BUNDLE = "node_modules/.cache/bundle";
export const BUNDLED_MAIN = "main.js";
/** Folder where Node.js stores compiled code for `./plenum`, in a subfolder per version of Node.js. */
const COMPILED = "node_modules/.cache/plenum";

/** Loaded when one of its names is touched, and so a file of its own; see `src/cli/shell/one-undici.ts`. */
const UNDICI = "undici";

const DAY_MS = 86_400_000;

/** Reads files of its own when it is loaded, and so stays a package; it is the one that has parts made for a machine. */
const KAFKA = "@platformatic/kafka";

/**
 * Packages that know their own place for what Plenum does not use: pino for threads that write the log, node-cron for
 * tasks in processes of their own, undici for telling who mocks it.
 */
const KNOWS_ITS_PLACE = ["node-cron", "pino", "thread-stream", "undici"];

/**
 * Writes it into the folder `target` for the project at `root`. It is to lie in the folder `at` of a copy of the project,
 * in whose `src` and `config` it finds pages and examples, and in whose `node_modules` what is made for one machine.
 */
export async function bundle(root: string, target: string, at = BUNDLE): Promise<void> {
  const begun = new Date();
  const build = await rolldown({
    cwd: root,
    input: { main: join(root, "src/cli/main.ts"), [UNDICI]: UNDICI },
    external: [KAFKA],
    platform: "node",
    // Names of source files are comments in the bundle and must not depend on the machine.
    resolve: { symlinks: false },
    plugins: [inPlace(join(root, at))],
    onLog(_level, { code, message }) {
      // A package that evaluates code of its own making may do so; all else is an error.
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
  for (const chunk of chunks) refuseThatKnowsItsPlace(chunk);
  // The main file comes last, so a command that starts now finds all others. Files of older bundles have other names.
  for (const { fileName, code } of chunks.toSorted((a, b) => Number(isMain(a)) - Number(isMain(b)))) {
    // Others may be making the same.
    const unfinished = join(target, `${fileName}.${process.pid}`);
    writeFileSync(unfinished, inLatin1(code));
    // As old as what it was made of: a source that was changed meanwhile is newer.
    utimesSync(unfinished, begun, begun);
    renameSync(unfinished, join(target, fileName));
  }
  // Who still runs another one loads some of its files when they are needed.
  forgetOld(target, new Set(chunks.map(({ fileName }) => fileName)));
}

/** Makes the bundle of the project at `root` where `./plenum` looks for it. */
export async function build(root: string): Promise<void> {
  const target = join(root, BUNDLE);
  mkdirSync(target, { recursive: true });
  // Below `node_modules` nothing else says it, and Node.js would parse every file once more to find out.
  writeFileSync(join(target, "package.json"), '{"type":"module"}\n');
  await bundle(root, target);
  // Each bundle has its own compiled code, some 5 MB; what is still needed of it comes again by itself.
  for (const folder of existsSync(join(root, COMPILED)) ? readdirSync(join(root, COMPILED)) : [])
    forgetOld(join(root, COMPILED, folder), new Set());
}

/** Removes what is in a folder for more than a day and was not just made. */
function forgetOld(folder: string, made: ReadonlySet<string>): void {
  for (const name of readdirSync(folder)) {
    const path = join(folder, name);
    const { mtimeMs = Date.now() } = statSync(path, { throwIfNoEntry: false }) ?? {};
    if (!made.has(name) && Date.now() - mtimeMs > DAY_MS) rmSync(path, { force: true });
  }
}

const isMain = ({ fileName }: OutputChunk) => fileName === BUNDLED_MAIN;

/** Keeps `import.meta.url` of each source, because modules look for files in their own folder. */
function inPlace(folder: string): Plugin {
  return {
    name: "in-place",
    transform: {
      filter: { id: /\.ts$/, code: /import\.meta\.url|require\("undici"\)/ },
      handler(code, id) {
        const place = JSON.stringify(relative(folder, id).replaceAll("\\", "/"));
        const here = `new URL(${place}, import.meta.url)`;
        return (
          code
            .replaceAll("import.meta.url", here)
            // A required module is in the bundle, or a package.
            .replaceAll(`createRequire(${here})`, "createRequire(import.meta.url)")
            .replaceAll(`require("${UNDICI}")`, `require("./${UNDICI}.js").default`)
        );
      },
    },
  };
}

/** Throws for a package that looks for files in its own folder: in the bundle it would not find them. */
function refuseThatKnowsItsPlace({ modules }: OutputChunk): void {
  for (const [id, { code }] of Object.entries(modules)) {
    const [, name] = /.*node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(id.replaceAll("\\", "/")) ?? [];
    if (name === undefined && /import\.meta\.(?:dirname|filename)/.test(code ?? ""))
      throw new Error(`${id} says where it lies by import.meta.dirname: say it by import.meta.url.`);
    if (name === undefined || KNOWS_ITS_PLACE.includes(name)) continue;
    if (/import\.meta\.|__dirname|__filename/.test(code ?? ""))
      throw new Error(`${name} looks for files beside its own (${id}): name it as external in tools/bundle.ts.`);
  }
}

/** V8 keeps a text in which one character is beyond Latin-1 in two bytes for each: those are written by their numbers. */
function inLatin1(code: string): string {
  const escaped = (unit: string) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;
  return code.replaceAll(/\P{ASCII}+/gu, (text) => text.split("").map(escaped).join(""));
}

if (import.meta.main) {
  const root = join(import.meta.dirname, "..");
  const [at] = process.argv.slice(2);
  await (at === undefined ? build(root) : bundle(root, join(root, at), at));
}
