import { readFileSync } from "node:fs";

interface Manifest {
  readonly version: string;
  readonly gitHead?: string;
}

const COMMIT_DIGITS = 12;

const manifest: Manifest = JSON.parse(read("package.json") ?? "");
const commit = manifest.gitHead ?? commitOfCheckout();

/** `0.1.0+1a2b3c4d5e6f`: version and commit; `.dirty` marks uncommitted files. */
export const VERSION: string = commit === null ? manifest.version : `${manifest.version}+${shortened(commit)}`;

export const RELEASE: string = manifest.version;

export const USER_AGENT = `plenum/${VERSION}`;

function shortened(id: string): string {
  const [, digits = "", rest = ""] = /^([0-9a-f]+)(.*)$/.exec(id) ?? [];
  return digits.slice(0, COMMIT_DIGITS) + rest;
}

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
