// @ts-check
"use strict";
/**
 * Requirements of the host, so that npm can install the Node.js that Plenum runs under. All files `tools/*.cjs` run under
 * the Node.js of the host, which may be ten years old: they keep to the JavaScript of 2015 and to `require`.
 */

/**
 * Some platform packages of the test tools ask for `^20.19.0 || >=22.12.0`, and npm leaves an optional package out
 * without a word when the host's Node.js is older: it would only be missed when the tests start.
 */
const NODE_FLOORS = [
  [20, 19],
  [22, 12],
];

/** It comes with all of them; what an older one makes of the lock file is not tested. */
const NPM_FLOOR = [10];

const NEEDS = `Plenum needs Node.js ${NODE_FLOORS.map((floor) => floor.join(".")).join(", ")} or newer with npm ${NPM_FLOOR.join(".")} or newer`;

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
 * Within the line of a floor its minor version counts, and beyond the last one everything does: 21 is older than 22.12.
 * @param {string} version
 */
function nodeWillDo(version) {
  const line = NODE_FLOORS.find(([major]) => parseInt(version, 10) === major);
  return reaches(version, line || NODE_FLOORS[NODE_FLOORS.length - 1] || []);
}

/**
 * The host as npm describes it to its scripts ("npm/10.8.2 node/v20.20.2 linux x64 …"): a script itself may already run
 * under the Node.js that was installed. Without npm, or under another program in its place, it is who runs this.
 * @param {string | undefined} userAgent
 * @returns {{ readonly node: string, readonly npm: string | null }}
 */
function hostOf(userAgent) {
  const found = /^npm\/(\S+) node\/v(\S+)/.exec(userAgent || "");
  return found && found[1] && found[2] ? { node: found[2], npm: found[1] } : { node: process.versions.node, npm: null };
}

/**
 * One sentence for the person at the host, null when all is well.
 * @param {{ readonly node: string, readonly npm: string | null }} host npm is null when it is not known
 */
function hostTrouble({ node, npm }) {
  if (nodeWillDo(node) && (npm === null || reaches(npm, NPM_FLOOR))) return null;
  const here = npm === null ? `Node.js ${node}` : `Node.js ${node} with npm ${npm}`;
  return `${NEEDS}, and this is ${here}: install a newer one from https://nodejs.org and run this command again.`;
}

module.exports = { NEEDS, hostOf, hostTrouble, reaches };
