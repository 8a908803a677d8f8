// @ts-check
"use strict";
/**
 * What the host must have so that npm can bring the Node.js that Plenum runs under. All files `tools/*.cjs` run under
 * the Node.js of the host, which may be ten years old: they keep to the JavaScript of 2015 and to `require`.
 */

/** Node.js 20.9 is the first that comes with npm 10. */
const NODE_FLOOR = [20, 9];

/** Older ones leave out the packages that are made for glibc (`libc` in the lock file): vitest and oxlint then fail. */
const NPM_FLOOR = [10];

const NEEDS = `Plenum needs Node.js ${NODE_FLOOR.join(".")} or newer with npm ${NPM_FLOOR.join(".")} or newer`;

/**
 * @param {string} version such as "20.9.0" or "v20.9.0"
 * @param {readonly number[]} floor
 */
function reaches(version, floor) {
  const parts = version.replace(/^v/, "").split(".").map(Number);
  const place = floor.findIndex((least, at) => parts[at] !== least);
  return place < 0 || Number(parts[place]) > Number(floor[place]);
}

/**
 * The npm that runs this script, by its user agent ("npm/10.8.2 node/v20.20.2 linux x64 …"); null when none does, or
 * another program in its place.
 * @param {string | undefined} userAgent
 */
function npmOf(userAgent) {
  const found = /^npm\/(\S+)/.exec(userAgent || "");
  return (found && found[1]) || null;
}

/**
 * One sentence for the person at the host, null when all is well.
 * @param {string} node
 * @param {string | null} npm null when it is not known
 */
function hostTrouble(node, npm) {
  if (reaches(node, NODE_FLOOR) && (npm === null || reaches(npm, NPM_FLOOR))) return null;
  const here = npm === null ? `Node.js ${node}` : `Node.js ${node} with npm ${npm}`;
  return `${NEEDS}, and this is ${here}: install a newer one from https://nodejs.org and run this command again.`;
}

module.exports = { NEEDS, hostTrouble, npmOf, reaches };
