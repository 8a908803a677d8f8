#!/usr/bin/env node
// @ts-check
"use strict";
/**
 * The command `plenum` of the npm package, which runs the bundle under the host's Node.js. Like all `tools/*.cjs` it uses
 * only the JavaScript of 2015, so that an old Node.js can print the requirement.
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

/** V8 flags as in the script `plenum`, which explains them. */
const FLAGS = "--min-semi-space-size=4 --max-semi-space-size=4";
const WORKER_FLAGS =
  "--min-semi-space-size=4 --max-semi-space-size=4 --heap-growing-percent=20 --no-parallel-scavenge --no-allocation-site-pretenuring";
/** Newest tested major version of Node.js. A newer version gets no flags, because an unknown flag prevents the start. */
const NEWEST_TESTED = 26;

/** @param {string | undefined} command */
function selectFlags(command) {
  if (isAtLeast(process.versions.node, [NEWEST_TESTED + 1, 0])) return "";
  return command === "run" || command === "demo" ? WORKER_FLAGS : FLAGS;
}

/** As in the script `plenum`: stores compiled code (in the user's cache folder) and returns freed memory to the system. */
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
  // Replaces this process, so that signals reach the worker. Windows and older Node.js start a child process instead.
  if (process.platform !== "win32" && process.execve)
    process.execve(process.execPath, [process.execPath].concat(args), env);
  const child = spawn(process.execPath, args, { stdio: "inherit", env });
  // Ignores Ctrl-C, which the terminal sends to the child too.
  process.on("SIGINT", () => {});
  child.on("exit", (code) => {
    process.exitCode = code === null ? 1 : code;
  });
}

main();
