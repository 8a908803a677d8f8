// @ts-check
"use strict";
/**
 * Runs a command of an installed package, a file, or Node.js with options, under the Node.js that the project pins:
 * `node tools/run.cjs tsc -p tsconfig.json`, `node tools/run.cjs src/cli/main.ts run`. All npm scripts use it.
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
 * Returns the file of a command from the packages in package.json, because links and batch files of npm differ by system.
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

/** True in an npm script, which developers use; false in plenum.cmd, which users use. */
const IS_NPM_SCRIPT = process.env.npm_lifecycle_event !== undefined;

/**
 * Puts the pinned Node.js first on PATH, so that the command's own `node` calls use it too.
 * @param {string} path path of Node.js
 */
function createEnvironment(path) {
  const env = Object.assign({}, process.env, IS_NPM_SCRIPT ? {} : { NODE_COMPILE_CACHE: COMPILE_CACHE });
  // Reuses the existing spelling: Windows writes "Path", and a second spelling could be ignored.
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
  // Updates outdated packages for users; developers run `npm ci` themselves.
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
      // A terminal sends Ctrl-C to the child too, and a second signal would end the worker at once.
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
