// @ts-check
"use strict";
/**
 * Versions of Node.js and npm that the host needs to install Plenum. All files `tools/*.cjs` run under the host's Node.js,
 * which may be ten years old: they use only the JavaScript of 2015 and `require`.
 */

/**
 * Some platform packages of the test tools require `^20.19.0 || >=22.12.0`. With an older Node.js npm skips these optional
 * packages without a message, and the tests then fail to start.
 */
const NODE_FLOORS = [
  [20, 19],
  [22, 12],
];

/** All of these Node.js versions include npm 10. An older npm is not tested with the lock file. */
const NPM_FLOOR = [10];

const REQUIREMENTS = `Plenum needs Node.js ${NODE_FLOORS.map((floor) => floor.join(".")).join(", ")} or newer with npm ${NPM_FLOOR.join(".")} or newer`;

/**
 * @param {string} version such as "20.9.0" or "v20.9.0"
 * @param {readonly number[]} floor
 */
function isAtLeast(version, floor) {
  const parts = version.replace(/^v/, "").split(".").map(Number);
  const index = floor.findIndex((least, at) => parts[at] !== least);
  return index < 0 || Number(parts[index]) > Number(floor[index]);
}

/**
 * True if the version reaches the floor of its major version, or else the last floor: 20.19 is supported, 21.9 is not.
 * @param {string} version
 */
function isNodeSupported(version) {
  const floor = NODE_FLOORS.find(([major]) => parseInt(version, 10) === major);
  return isAtLeast(version, floor || NODE_FLOORS[NODE_FLOORS.length - 1] || []);
}

/**
 * Versions of the host from npm's user agent ("npm/10.8.2 node/v20.20.2 linux x64 …"), because an npm script may already
 * run under the installed Node.js. Without npm, the version of the running Node.js.
 * @param {string | undefined} userAgent
 * @returns {{ readonly node: string, readonly npm: string | null }}
 */
function parseHostVersions(userAgent) {
  const found = /^npm\/(\S+) node\/v(\S+)/.exec(userAgent || "");
  return found && found[1] && found[2] ? { node: found[2], npm: found[1] } : { node: process.versions.node, npm: null };
}

/**
 * Message for a host with an unsupported Node.js or npm; null if both are supported.
 * @param {{ readonly node: string, readonly npm: string | null }} host npm is null if it is unknown
 */
function describeUnsupportedHost({ node, npm }) {
  if (isNodeSupported(node) && (npm === null || isAtLeast(npm, NPM_FLOOR))) return null;
  const installed = npm === null ? `Node.js ${node}` : `Node.js ${node} with npm ${npm}`;
  return `${REQUIREMENTS}, and this is ${installed}: install a newer one from https://nodejs.org and run this command again.`;
}

module.exports = { REQUIREMENTS, parseHostVersions, describeUnsupportedHost, isAtLeast };
