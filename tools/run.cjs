// @ts-check
"use strict";
/**
 * `node tools/run.cjs tsc -p tsconfig.json` and `node tools/run.cjs src/cli/main.ts run`: runs a command of an installed
 * package, a file, or Node.js with options under the Node.js that the project pins. All npm scripts go through here.
 */
const { spawn } = require("child_process");
const { readFileSync } = require("fs");
const { delimiter, dirname, join } = require("path");
const { COMPILE_CACHE, prepare } = require("./prepare.cjs");

const ROOT = join(__dirname, "..");

/** @param {string} path */
function readJson(path) {
  return JSON.parse(readFileSync(path, "utf8"));
}

/**
 * The file of a command, by the packages that package.json names: links and batch files differ with npm and system.
 * @param {string} command
 * @returns {string | null}
 */
function findCommandFile(command) {
  const { dependencies, devDependencies } = readJson(join(ROOT, "package.json"));
  for (const name of Object.keys(Object.assign({}, dependencies, devDependencies))) {
    const folder = join(ROOT, "node_modules", name);
    const { bin } = readJson(join(folder, "package.json"));
    if (typeof bin === "string" && name === command) return join(folder, bin);
    if (typeof bin === "object" && command in bin) return join(folder, bin[command]);
  }
  return null;
}

/** npm's own scripts are a developer's; without npm somebody merely starts Plenum (plenum.cmd). */
const IS_NPM_SCRIPT = process.env.npm_lifecycle_event !== undefined;

/** @param {string} path of Node.js: what the command starts by the name `node` is to be the same. */
function createEnvironment(path) {
  const env = Object.assign({}, process.env, IS_NPM_SCRIPT ? {} : { NODE_COMPILE_CACHE: COMPILE_CACHE });
  // Windows writes it "Path", and keeps whichever it finds first.
  const key = Object.keys(env).find((name) => name.toUpperCase() === "PATH") || "PATH";
  env[key] = [dirname(path), env[key]].join(delimiter);
  return env;
}

/** @param {string} failure */
function fail(failure) {
  process.stderr.write(`${failure}\n`);
  process.exitCode = 1;
}

/** @param {readonly string[]} args */
function main(args) {
  // A developer decides when to install again; for users the packages always match the lock file.
  const prepared = prepare({ requiresCurrent: !IS_NPM_SCRIPT });
  if ("failure" in prepared) return fail(prepared.failure);
  const command = args[0] || "";
  const isCommand = /^[a-z][a-z-]*$/.test(command);
  const file = isCommand ? findCommandFile(command) : null;
  if (isCommand && file === null) return fail(`No package of this project has a command ${command}.`);

  const nodeArgs = file === null ? args : [file].concat(args.slice(1));
  const child = spawn(prepared.path, nodeArgs, { stdio: "inherit", env: createEnvironment(prepared.path) });
  child.on("error", (error) => fail(`${prepared.path} does not start: ${error.message}`));
  for (const signal of /** @type {const} */ (["SIGTERM", "SIGINT", "SIGHUP"])) {
    process.on(signal, () => {
      // A terminal tells all its processes by itself, and a second Ctrl-C would mean “at once”.
      if (signal === "SIGTERM" || !process.stdin.isTTY) child.kill(signal);
    });
  }
  child.on("exit", (code, signal) => {
    if (signal === null) {
      process.exitCode = code === null ? 1 : code;
      return;
    }
    process.removeAllListeners(signal);
    process.kill(process.pid, signal);
  });
}

main(process.argv.slice(2));
