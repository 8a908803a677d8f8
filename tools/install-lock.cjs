// @ts-check
"use strict";
const { readFileSync, renameSync, statSync, unlinkSync, writeFileSync } = require("fs");
const { join } = require("path");

/** File with the id of the installing process. It is outside `node_modules`, which npm empties; git ignores it. */
const LOCK_FILE = ".installing";

/** A lock older than this (15 minutes) is abandoned, even if a process has its id: the system reuses process ids. */
const MAX_INSTALL_MS = 900000;
const RETRY_INTERVAL_MS = 200;

/**
 * Runs `install` when no other process does so in the same folder: two `npm ci` at a time delete each other's files.
 * A second command in another terminal, or a service that starts again after an update, waits until the first is done.
 * @template T
 * @param {string} root
 * @param {() => void} onWait called once if another process is installing
 * @param {() => T} install
 * @returns {T}
 */
function withInstallLock(root, onWait, install) {
  const lock = join(root, LOCK_FILE);
  let isReported = false;
  while (!createLock(lock)) {
    if (removeAbandonedLock(lock)) continue;
    if (!isReported) onWait();
    isReported = true;
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, RETRY_INTERVAL_MS);
  }
  try {
    return install();
  } finally {
    remove(lock);
  }
}

/**
 * Creates the lock file. Also returns true if the folder cannot be written, because npm then reports that error.
 * @param {string} lock
 * @returns {boolean} false while another process holds the lock
 */
function createLock(lock) {
  try {
    writeFileSync(lock, String(process.pid), { flag: "wx" });
    return true;
  } catch (error) {
    return errorCode(error) !== "EEXIST";
  }
}

/**
 * Removes the lock of a process that has ended. If several processes find such a lock, only one removes it.
 * @param {string} lock
 * @returns {boolean}
 */
function removeAbandonedLock(lock) {
  const renamedLock = `${lock}.${process.pid}`;
  try {
    const owner = readFileSync(lock, "utf8");
    if (isOwnerRunning(lock, owner)) return false;
    renameSync(lock, renamedLock);
    const isUnchanged = readFileSync(renamedLock, "utf8") === owner;
    if (isUnchanged) unlinkSync(renamedLock);
    // Another process has already replaced the abandoned lock, so put its lock back.
    else renameSync(renamedLock, lock);
    return isUnchanged;
  } catch (_error) {
    // The lock no longer exists or cannot be removed.
    return false;
  }
}

/**
 * @param {string} lock
 * @param {string} owner process id; empty until it is written
 */
function isOwnerRunning(lock, owner) {
  if (Date.now() - statSync(lock).mtimeMs > MAX_INSTALL_MS) return false;
  try {
    if (owner !== "") process.kill(Number(owner), 0);
    return true;
  } catch (error) {
    // EPERM: a process of another user has this id.
    return errorCode(error) === "EPERM";
  }
}

/** @param {string} lock */
function remove(lock) {
  try {
    unlinkSync(lock);
  } catch (_error) {
    // The lock could not be created, or another process removed it as abandoned.
  }
}

/**
 * @param {unknown} error
 * @returns {unknown}
 */
function errorCode(error) {
  return error instanceof Error ? /** @type {{ code?: unknown }} */ (error).code : undefined;
}

module.exports = { withInstallLock };
