// @ts-check
"use strict";
const { readFileSync, renameSync, statSync, unlinkSync, writeFileSync } = require("fs");
const { join } = require("path");

/** File with the number of the process that installs. It is outside `node_modules`, which npm empties; git ignores it. */
const MARK = ".installing";

/** Longer than any installation takes, in milliseconds: a number of a process may come again after a crash. */
const LONGEST_MS = 900000;
const LOOK_AGAIN_MS = 200;

/**
 * Runs `install` when no other process does so in the same folder: two `npm ci` at a time delete each other's files.
 * A second command in another terminal, or a service that starts again after an update, waits until the first is done.
 * @template T
 * @param {string} root
 * @param {() => void} waiting called once when somebody else is installing
 * @param {() => T} install
 * @returns {T}
 */
function oneAtATime(root, waiting, install) {
  const mark = join(root, MARK);
  let told = false;
  while (!takes(mark)) {
    if (clearsAbandoned(mark)) continue;
    if (!told) waiting();
    told = true;
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, LOOK_AGAIN_MS);
  }
  try {
    return install();
  } finally {
    remove(mark);
  }
}

/**
 * Creates the file. A folder that cannot be written counts as taken by us: npm reports that error.
 * @param {string} mark
 * @returns {boolean} false while somebody else has it
 */
function takes(mark) {
  try {
    writeFileSync(mark, String(process.pid), { flag: "wx" });
    return true;
  } catch (error) {
    return codeOf(error) !== "EEXIST";
  }
}

/**
 * Removes the mark of a process that ended without doing so; of several that find it, one does.
 * @param {string} mark
 * @returns {boolean}
 */
function clearsAbandoned(mark) {
  const aside = `${mark}.${process.pid}`;
  try {
    const owner = readFileSync(mark, "utf8");
    if (isAtWork(mark, owner)) return false;
    renameSync(mark, aside);
    const isTheSame = readFileSync(aside, "utf8") === owner;
    // Another one was quicker, and has made its own meanwhile.
    if (isTheSame) unlinkSync(aside);
    else renameSync(aside, mark);
    return isTheSame;
  } catch (_error) {
    // It is gone, or cannot be removed.
    return false;
  }
}

/**
 * @param {string} mark
 * @param {string} owner number of a process; empty for a moment, before it is written
 */
function isAtWork(mark, owner) {
  if (Date.now() - statSync(mark).mtimeMs > LONGEST_MS) return false;
  try {
    if (owner !== "") process.kill(Number(owner), 0);
    return true;
  } catch (error) {
    // Somebody else's process answers so too.
    return codeOf(error) === "EPERM";
  }
}

/** @param {string} mark */
function remove(mark) {
  try {
    unlinkSync(mark);
  } catch (_error) {
    // It could not be made either, or somebody found it too old.
  }
}

/**
 * @param {unknown} error
 * @returns {unknown}
 */
function codeOf(error) {
  return error instanceof Error ? /** @type {{ code?: unknown }} */ (error).code : undefined;
}

module.exports = { oneAtATime };
