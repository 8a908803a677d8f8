import { readFileSync } from "node:fs";

interface Manifest {
  readonly version: string;
  /** The commit that a package was made of; `npm run release` writes it. */
  readonly gitHead?: string;
}

/** Digits of a commit in the version; enough to be unique. */
const COMMIT_DIGITS = 12;

const manifest: Manifest = JSON.parse(read("package.json") ?? "");
const commit = manifest.gitHead ?? commitOfCheckout();

/**
 * Version of package.json and the commit, as a semantic version: `0.1.0+1a2b3c4d5e6f`. A package of uncommitted files ends
 * with `.dirty`. Only the version when the commit is unknown.
 */
export const VERSION: string = commit === null ? manifest.version : `${manifest.version}+${shortened(commit)}`;

/** Version of package.json without the commit. */
export const RELEASE: string = manifest.version;

/** User agent of every HTTP request. */
export const USER_AGENT = `plenum/${VERSION}`;

function shortened(id: string): string {
  const [, digits = "", rest = ""] = /^([0-9a-f]+)(.*)$/.exec(id) ?? [];
  return digits.slice(0, COMMIT_DIGITS) + rest;
}

/** Commit of a clone, read from .git without running git. */
function commitOfCheckout(): string | null {
  const head = read(".git/HEAD")?.trim();
  const branch = /^ref: (\S+)$/.exec(head ?? "")?.[1];
  const found = branch === undefined ? head : (read(`.git/${branch}`)?.trim() ?? packed(branch));
  return found !== undefined && /^[0-9a-f]{40,64}$/.test(found) ? found : null;
}

function packed(branch: string): string | undefined {
  return read(".git/packed-refs")
    ?.split("\n")
    .find((line) => line.endsWith(` ${branch}`))
    ?.split(" ")[0];
}

function read(path: string): string | null {
  try {
    return readFileSync(new URL(`../../../${path}`, import.meta.url), "utf8");
  } catch {
    return null;
  }
}
