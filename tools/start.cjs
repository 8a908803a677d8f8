#!/usr/bin/env node
// @ts-check
"use strict";
/**
 * The command `plenum` of a package that `npm run release` made: JavaScript, run by the Node.js that is there. Like all
 * of `tools/*.cjs` it keeps to the JavaScript of 2015, so that an old Node.js can say what it lacks.
 */
const { spawn } = require("child_process");
const { readFileSync } = require("fs");
const { homedir } = require("os");
const { join } = require("path");
const { isAtLeast } = require("./host.cjs");

const ROOT = join(__dirname, "..");
const MAIN = join(ROOT, "program/main.js");

const manifest = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8"));
const floor = manifest.engines.node.replace(/^>=/, "");

/** Flags that docs/sizing.md measures; the script `plenum` has the same and explains why short commands have fewer. */
const FLAGS = "--min-semi-space-size=4 --max-semi-space-size=4";
const WORKER_FLAGS =
  "--min-semi-space-size=4 --max-semi-space-size=4 --heap-growing-percent=20 --no-parallel-scavenge --no-allocation-site-pretenuring";
/** The newest Node.js of which is known that it has these flags: with one that it lacks it would not start. */
const NEWEST_KNOWN = 26;

/** @param {string | undefined} command */
function selectFlags(command) {
  if (isAtLeast(process.versions.node, [NEWEST_KNOWN + 1, 0])) return "";
  return command === "run" || command === "demo" ? WORKER_FLAGS : FLAGS;
}

/** As in the script `plenum`: compiled code is kept where this user may write, and freed memory is given back. */
const ENVIRONMENT = {
  NODE_COMPILE_CACHE: join(process.env.XDG_CACHE_HOME || join(homedir(), ".cache"), "plenum"),
  MALLOC_ARENA_MAX: "1",
  MALLOC_TRIM_THRESHOLD_: "131072",
};

function main() {
  if (!isAtLeast(process.versions.node, floor.split(".").map(Number))) {
    process.stderr.write(
      `Plenum ${manifest.version} needs Node.js ${floor} or newer, and this is Node.js ${process.versions.node}: install a newer one from https://nodejs.org and run this command again.\n`,
    );
    process.exitCode = 1;
    return;
  }
  const configuredFlags = process.env.PLENUM_NODE_FLAGS;
  const flags = configuredFlags === undefined ? selectFlags(process.argv[2]) : configuredFlags;
  const args = flags.split(/\s+/).filter(Boolean).concat(MAIN, process.argv.slice(2));
  const env = Object.assign({}, ENVIRONMENT, process.env);
  // In place of this process, so that signals and service managers reach the worker itself. Windows has no such thing.
  if (process.platform !== "win32" && process.execve)
    process.execve(process.execPath, [process.execPath].concat(args), env);
  const child = spawn(process.execPath, args, { stdio: "inherit", env });
  // A terminal tells the child by itself.
  process.on("SIGINT", () => {});
  child.on("exit", (code) => {
    process.exitCode = code === null ? 1 : code;
  });
}

main();
