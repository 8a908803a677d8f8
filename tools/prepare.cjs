// @ts-check
"use strict";
/**
 * Installs missing packages and finds the Node.js that Plenum runs under. As a command (of the script `plenum`) it prints
 * the path of that Node.js on standard output, and messages on standard error.
 */
const { spawnSync } = require("child_process");
const { existsSync, statSync } = require("fs");
const { join } = require("path");
const { parseHostVersions, describeUnsupportedHost, REQUIREMENTS } = require("./host.cjs");
const { withInstallLock } = require("./install-lock.cjs");
const { findNode, linkNode } = require("./pinned-node.cjs");

const ROOT = join(__dirname, "..");

/** Folder in which Node.js stores compiled code for faster starts; the script `plenum` uses the same folder. */
const COMPILE_CACHE = join(ROOT, "node_modules/.cache/plenum");

/**
 * npm writes its copy of the lock file last, so this copy is missing after an interrupted installation.
 * @param {boolean} requiresCurrent true if an installation that is older than the lock file counts as missing
 */
function isInstalled(requiresCurrent) {
  const copy = join(ROOT, "node_modules/.package-lock.json");
  if (!existsSync(copy)) return false;
  return !requiresCurrent || statSync(join(ROOT, "package-lock.json")).mtimeMs <= statSync(copy).mtimeMs;
}

/**
 * Runs the npm that started this script, or otherwise the npm on PATH.
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
 * @param {{ readonly requiresCurrent: boolean }} options
 * @returns {{ readonly installed: boolean } | { readonly failure: string }} `installed`: true if this call installed packages
 */
function installMissing({ requiresCurrent }) {
  if (isInstalled(requiresCurrent)) return { installed: false };
  const reportWait = () =>
    process.stderr.write("Another command is installing Plenum's packages; waiting until it has finished …\n");
  return withInstallLock(ROOT, reportWait, () => {
    if (isInstalled(requiresCurrent)) return { installed: false };
    const failure = install();
    return failure === null ? { installed: true } : { failure };
  });
}

/** @returns {string | null} the message if the installation failed */
function install() {
  const versionCommand = npm(["--version"], ["ignore", "pipe", "ignore"]);
  const version = versionCommand.status === 0 ? String(versionCommand.stdout).trim() : null;
  if (version === null) return `${REQUIREMENTS}, and npm does not run here: install it from https://nodejs.org.`;
  const failure = describeUnsupportedHost({ node: process.versions.node, npm: version });
  if (failure !== null) return failure;
  process.stderr.write("Installing Plenum's packages (once, about half a minute) …\n");
  // Output of npm goes to standard error: a command of Plenum may print data on standard output.
  if (npm(["ci", "--no-progress"], ["ignore", 2, 2]).status === 0) return null;
  return "The installation failed; the lines above show the reason. Check the network and run this command again.";
}

/**
 * @param {{ readonly requiresCurrent: boolean }} options
 * @returns {{ readonly path: string, readonly installed: boolean } | { readonly failure: string }}
 */
function prepare(options) {
  const hostFailure = describeUnsupportedHost(parseHostVersions(process.env.npm_config_user_agent));
  if (hostFailure !== null) return { failure: hostFailure };
  const packages = installMissing(options);
  if ("failure" in packages) return packages;
  const node = findNode(ROOT);
  if ("failure" in node) return node;
  if (node.pinned) linkNode(ROOT, node.path);
  return { path: node.path, installed: packages.installed };
}

function main() {
  const prepared = prepare({ requiresCurrent: true });
  if ("failure" in prepared) {
    process.stderr.write(`${prepared.failure}\n`);
    process.exitCode = 1;
    return;
  }
  // Builds the bundle, which starts sooner. Without a bundle, the script `plenum` runs the sources.
  if (prepared.installed && spawnSync(prepared.path, [join(__dirname, "bundle.ts")], { stdio: "ignore" }).status !== 0)
    process.stderr.write(
      "Plenum could not build its bundle and runs the sources, which is a little slower. `npm run build` shows the reason.\n",
    );
  process.stdout.write(`${prepared.path}\n`);
}

if (require.main === module) main();

module.exports = { COMPILE_CACHE, prepare };
