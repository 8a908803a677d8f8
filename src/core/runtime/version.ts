import { readFileSync } from "node:fs";

const SHORT_COMMIT_ID_DIGITS = 12;
const packageManifest: { readonly version: string; readonly gitHead?: string } = JSON.parse(
  readRepositoryFile("package.json") ?? "",
);
const commitId = packageManifest.gitHead ?? readCheckedOutCommit();

/** `0.1.0+1a2b3c4d5e6f`: version and commit; `.dirty` marks uncommitted files. */
export const VERSION: string =
  commitId === null ? packageManifest.version : `${packageManifest.version}+${shortenCommitId(commitId)}`;

export const RELEASE_VERSION: string = packageManifest.version;
export const USER_AGENT = `plenum/${VERSION}`;

function shortenCommitId(id: string): string {
  const [, digits = "", suffix = ""] = /^([0-9a-f]+)(.*)$/.exec(id) ?? [];
  return digits.slice(0, SHORT_COMMIT_ID_DIGITS) + suffix;
}

function readCheckedOutCommit(): string | null {
  const gitHead = readRepositoryFile(".git/HEAD")?.trim();
  const gitRef = /^ref: (\S+)$/.exec(gitHead ?? "")?.[1];
  const headCommitId =
    gitRef === undefined ? gitHead : (readRepositoryFile(`.git/${gitRef}`)?.trim() ?? findPackedRef(gitRef));
  return headCommitId !== undefined && /^[0-9a-f]{40,64}$/.test(headCommitId) ? headCommitId : null;
}

function findPackedRef(refName: string): string | undefined {
  return readRepositoryFile(".git/packed-refs")
    ?.split("\n")
    .find((line) => line.endsWith(` ${refName}`))
    ?.split(" ")[0];
}

function readRepositoryFile(path: string): string | null {
  try {
    return readFileSync(new URL(`../../../${path}`, import.meta.url), "utf8");
  } catch {
    return null;
  }
}
