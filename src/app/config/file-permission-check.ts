import { accessSync, constants, lstatSync, readlinkSync, type Stats, statSync } from "node:fs";
import { dirname, join, parse, resolve, sep } from "node:path";
import { ConfigError } from "../../core/errors/errors.ts";
import { systemErrorCode } from "../../core/errors/local-machine-failure.ts";
import { valueOr } from "../../core/values/value-or-fallback.ts";

export const ALLOW_WRITABLE_FLAG = "--allow-writable-config";

type FileOwnership = Pick<Stats, "mode" | "uid" | "gid">;

const LINK_LABEL = "link to the configuration file";
const STICKY_BIT = 0o1000;
const MAX_SYMBOLIC_LINKS = 40;

/** Throws `ConfigError` if another user could change a file, its folder, or a link on the path to the file. */
export function refuseUntrustedConfigFile(file: string, ownUid: number | null = process.geteuid?.() ?? null): void {
  const fileStats = ownUid === null ? undefined : readFileStatsIfPossible(file);
  if (ownUid === null || fileStats === undefined) return;
  refuseOtherWriters("configuration file", file, fileStats, ownUid);
  // A pipe of the shell, such as `--config <(decrypt plenum.yaml.age)`, has no folder to check.
  if (!fileStats.isFile()) return;
  for (const { path, isLink } of listLinksAndFolders(file)) {
    const pathOwnership = isLink ? readLinkOwnership(path) : readFolderOwnership(path);
    if (pathOwnership === undefined) continue;
    refuseOtherWriters(isLink ? LINK_LABEL : "folder of the configuration file", path, pathOwnership, ownUid);
  }
}

/** Returns undefined if the file is missing, or if the permission model of Node.js hides the file. */
const readFileStatsIfPossible = (path: string, readStats: typeof statSync = statSync): Stats | undefined =>
  valueOr(() => readStats(path, { throwIfNoEntry: false }), undefined);

/** Lists each link from a path to its file, each link's folder, and the folder of the file. */
function listLinksAndFolders(file: string) {
  const linksAndFolders: { readonly path: string; readonly isLink: boolean }[] = [];
  let remainingPath = resolve(file);
  for (let followedLinkCount = 0; followedLinkCount < MAX_SYMBOLIC_LINKS; followedLinkCount += 1) {
    const linkPath = findFirstSymbolicLink(remainingPath);
    if (linkPath === null) return [...linksAndFolders, { path: dirname(remainingPath), isLink: false }];
    linksAndFolders.push({ path: dirname(linkPath), isLink: false }, { path: linkPath, isLink: true });
    remainingPath = resolve(dirname(linkPath), readlinkSync(linkPath), `.${remainingPath.slice(linkPath.length)}`);
  }
  return linksAndFolders;
}

function findFirstSymbolicLink(path: string): string | null {
  const { root } = parse(path);
  let currentPath = root;
  for (const pathSegment of path.slice(root.length).split(sep)) {
    currentPath = join(currentPath, pathSegment);
    if (readFileStatsIfPossible(currentPath, lstatSync)?.isSymbolicLink() === true) return currentPath;
  }
  return null;
}

/** Returns the owner of a symbolic link, and mode 0, because the operating system ignores the mode of a link. */
function readLinkOwnership(link: string): FileOwnership | undefined {
  const fileStats = readFileStatsIfPossible(link, lstatSync);
  return fileStats && { mode: 0, uid: fileStats.uid, gid: fileStats.gid };
}

/** Returns owner and mode of a folder; mode 0 if others cannot replace our files there, e.g. in `/tmp` (sticky bit). */
function readFolderOwnership(folder: string): FileOwnership | undefined {
  const fileStats = readFileStatsIfPossible(folder);
  if (fileStats === undefined) return undefined;
  const { mode, uid, gid } = fileStats;
  const isFolderSafe = (mode & STICKY_BIT) !== 0 || isKubernetesVolume(folder, uid);
  return { mode: isFolderSafe ? 0 : mode, uid, gid };
}

/** True for a ConfigMap, which Kubernetes mounts read-only with mode 0777. Bind mounts are not exempt. */
function isKubernetesVolume(folder: string, uid: number): boolean {
  const kubernetesDataLink = readFileStatsIfPossible(join(folder, "..data"), lstatSync);
  if (uid !== 0 || kubernetesDataLink?.isSymbolicLink() !== true) return false;
  try {
    accessSync(folder, constants.W_OK);
    return false;
  } catch (error) {
    return systemErrorCode(error) === "EROFS";
  }
}

function refuseOtherWriters(pathLabel: string, path: string, { mode, uid, gid }: FileOwnership, ownUid: number): void {
  const allowWritableFlagHint = `or, if you trust everybody who may write there, run with ${ALLOW_WRITABLE_FLAG}.`;
  if (uid !== ownUid && uid !== 0)
    throw new ConfigError(`The ${pathLabel}, ${path}, belongs to another user (${uid}; this one is ${ownUid}).`, {
      hint: `Run: chown ${pathLabel === LINK_LABEL ? "-h " : ""}${ownUid} ${path}, ${allowWritableFlagHint}`,
    });
  // A group whose id equals the user id has no other members.
  const isGroupWritableByOthers = (mode & 0o020) !== 0 && gid !== uid;
  if ((mode & 0o002) === 0 && !isGroupWritableByOthers) return;
  const filePermissionsText = (mode & 0o7777).toString(8).padStart(3, "0");
  const refusalMessage = `Others than the owner can write to the ${pathLabel}, ${path} (mode ${filePermissionsText}, user ${uid}, group ${gid}).`;
  throw new ConfigError(refusalMessage, { hint: `Run: chmod go-w ${path}, ${allowWritableFlagHint}` });
}
