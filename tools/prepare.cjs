// @ts-check
"use strict";
/**
 * Installs what is missing and finds the Node.js that Plenum runs under. Called by itself (by the script `plenum`) it
 * prints the path of that Node.js; whatever else there is to say goes to standard error.
 */
const { spawnSync } = require("child_process");
const { existsSync, statSync } = require("fs");
const { join } = require("path");
const { hostOf, hostTrouble, NEEDS } = require("./host.cjs");
const { oneAtATime } = require("./one-at-a-time.cjs");
const { findNode, linkNode } = require("./pinned-node.cjs");

const ROOT = join(__dirname, "..");

/** Folder of compiled code, which makes a start quick; the script `plenum` names the same folder. */
const COMPILED = join(ROOT, "node_modules/.cache/plenum");

/**
 * npm writes its copy of the lock file last, so that is missing after an installation that was broken off.
 * @param {boolean} renew whether an installation that is older than the lock file counts as missing
 */
function isInstalled(renew) {
  const copy = join(ROOT, "node_modules/.package-lock.json");
  if (!existsSync(copy)) return false;
  return !renew || statSync(join(ROOT, "package-lock.json")).mtimeMs <= statSync(copy).mtimeMs;
}

/**
 * The npm that runs this script, else the one on the path; its output goes where `output` says.
 * @param {readonly string[]} args
 * @param {import("child_process").StdioOptions} stdio
 */
function npm(args, stdio) {
  const options = /** @type {const} */ ({ cwd: ROOT, stdio, encoding: "utf8" });
  const cli = process.env.npm_execpath;
  if (cli !== undefined && /npm-cli\.c?js$/.test(cli)) return spawnSync(process.execPath, [cli].concat(args), options);
  // On Windows npm is a batch file, which only a shell can start.
  if (process.platform === "win32") return spawnSync(`npm ${args.join(" ")}`, Object.assign({ shell: true }, options));
  return spawnSync("npm", args, options);
}

/**
 * @param {{ readonly renew: boolean }} options
 * @returns {{ readonly installed: boolean } | { readonly trouble: string }} `installed`: by this process, just now
 */
function installMissing({ renew }) {
  if (isInstalled(renew)) return { installed: false };
  const waiting = () =>
    process.stderr.write("Another command is installing what Plenum needs; waiting until it is done …\n");
  return oneAtATime(ROOT, waiting, () => {
    if (isInstalled(renew)) return { installed: false };
    const trouble = install();
    return trouble === null ? { installed: true } : { trouble };
  });
}

/** @returns {string | null} one sentence when it failed */
function install() {
  const asked = npm(["--version"], ["ignore", "pipe", "ignore"]);
  const version = asked.status === 0 ? String(asked.stdout).trim() : null;
  if (version === null) return `${NEEDS}, and npm does not run here: install it from https://nodejs.org.`;
  const trouble = hostTrouble({ node: process.versions.node, npm: version });
  if (trouble !== null) return trouble;
  process.stderr.write("Installing what Plenum needs (once, about half a minute) …\n");
  // Output of npm goes to standard error: a command of Plenum may print data on standard output.
  if (npm(["ci", "--no-progress"], ["ignore", 2, 2]).status === 0) return null;
  return "The installation failed; the lines above say why. Check the network and run this command again.";
}

/**
 * @param {{ readonly renew: boolean }} options
 * @returns {{ readonly path: string, readonly installed: boolean } | { readonly trouble: string }}
 */
function prepare(options) {
  const tooOld = hostTrouble(hostOf(process.env.npm_config_user_agent));
  if (tooOld !== null) return { trouble: tooOld };
  const packages = installMissing(options);
  if ("trouble" in packages) return packages;
  const found = findNode(ROOT);
  if ("trouble" in found) return found;
  if (found.pinned) linkNode(ROOT, found.path);
  return { path: found.path, installed: packages.installed };
}

function main() {
  const ready = prepare({ renew: true });
  if ("trouble" in ready) {
    process.stderr.write(`${ready.trouble}\n`);
    process.exitCode = 1;
    return;
  }
  // The script `plenum` explains the bundle, and runs the sources if there is none.
  if (ready.installed && spawnSync(ready.path, [join(__dirname, "bundle.ts")], { stdio: "ignore" }).status !== 0)
    process.stderr.write(
      "Plenum runs its sources, a little slower than their bundle: `npm run build` says what is wrong.\n",
    );
  process.stdout.write(`${ready.path}\n`);
}

if (require.main === module) main();

module.exports = { COMPILED, prepare };
