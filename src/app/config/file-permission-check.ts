import { accessSync, constants, lstatSync, readlinkSync, type Stats, statSync } from "node:fs";
import { dirname, join, parse, resolve, sep } from "node:path";
import { ConfigError } from "../../core/errors/errors.ts";
import { systemErrorCode } from "../../core/errors/machine-failure.ts";

export const ALLOW_WRITABLE_FLAG = "--allow-writable-config";

type FileOwnership = Pick<Stats, "mode" | "uid" | "gid">;

const LINK_LABEL = "link to the configuration file";
const STICKY_BIT = 0o1000;
/** Maximum number of links to follow, as in Linux. */
const MAX_LINKS = 40;

/** Throws `ConfigError` if another user could change a file, its folder, or a link on the path to the file. */
export function refuseUntrustedFile(file: string, ownUid: number | null = process.geteuid?.() ?? null): void {
  const stats = ownUid === null ? undefined : statIfReadable(file);
  if (ownUid === null || stats === undefined) return;
  refuseForeignWriter("configuration file", file, stats, ownUid);
  // Skip folders for a pipe of the shell, such as `--config <(decrypt plenum.yaml.age)`.
  if (!stats.isFile()) return;
  for (const { path, isLink } of listLinksAndFolders(file)) {
    const ownership = isLink ? linkOwnership(path) : folderOwnership(path);
    if (ownership === undefined) continue;
    refuseForeignWriter(isLink ? LINK_LABEL : "folder of the configuration file", path, ownership, ownUid);
  }
}

/** Stats of a path; undefined if the path is missing, or if the permission model of Node.js hides the path. */
function statIfReadable(path: string, readStats: typeof statSync = statSync): Stats | undefined {
  try {
    return readStats(path, { throwIfNoEntry: false });
  } catch {
    return undefined;
  }
}

/** Lists each link from a path to its file, each link's folder, and the folder of the file. */
function listLinksAndFolders(file: string) {
  const pathSteps: { readonly path: string; readonly isLink: boolean }[] = [];
  let remainingPath = resolve(file);
  for (let links = 0; links < MAX_LINKS; links += 1) {
    const link = firstLink(remainingPath);
    if (link === null) return [...pathSteps, { path: dirname(remainingPath), isLink: false }];
    pathSteps.push({ path: dirname(link), isLink: false }, { path: link, isLink: true });
    remainingPath = resolve(dirname(link), readlinkSync(link), `.${remainingPath.slice(link.length)}`);
  }
  return pathSteps;
}

function firstLink(path: string): string | null {
  const { root } = parse(path);
  let currentPath = root;
  for (const pathPart of path.slice(root.length).split(sep)) {
    currentPath = join(currentPath, pathPart);
    if (statIfReadable(currentPath, lstatSync)?.isSymbolicLink() === true) return currentPath;
  }
  return null;
}

/** Owner of a link with mode 0, because the system ignores the mode of a link. */
function linkOwnership(link: string): FileOwnership | undefined {
  const stats = statIfReadable(link, lstatSync);
  return stats && { mode: 0, uid: stats.uid, gid: stats.gid };
}

/** Owner and mode of a folder; mode 0 if other users cannot replace our files in it (sticky, e.g. `/tmp`). */
function folderOwnership(folder: string): FileOwnership | undefined {
  const stats = statIfReadable(folder);
  if (stats === undefined) return undefined;
  const { mode, uid, gid } = stats;
  const isFolderSafe = (mode & STICKY_BIT) !== 0 || isKubernetesVolume(folder, uid);
  return { mode: isFolderSafe ? 0 : mode, uid, gid };
}

/** True for a ConfigMap, which Kubernetes mounts read-only with mode 0777. Bind mounts are not exempt. */
function isKubernetesVolume(folder: string, uid: number): boolean {
  const dataLink = statIfReadable(join(folder, "..data"), lstatSync);
  if (uid !== 0 || dataLink?.isSymbolicLink() !== true) return false;
  try {
    accessSync(folder, constants.W_OK);
    return false;
  } catch (error) {
    return systemErrorCode(error) === "EROFS";
  }
}

function refuseForeignWriter(pathLabel: string, path: string, { mode, uid, gid }: FileOwnership, ownUid: number): void {
  const alternativeHint = `or, if you trust everybody who may write there, run with ${ALLOW_WRITABLE_FLAG}.`;
  if (uid !== ownUid && uid !== 0) {
    throw new ConfigError(`The ${pathLabel}, ${path}, belongs to another user (${uid}; this one is ${ownUid}).`, {
      hint: `Run: chown ${pathLabel === LINK_LABEL ? "-h " : ""}${ownUid} ${path}, ${alternativeHint}`,
    });
  }
  // A group with the number of the user has no other members, as usual with a umask of 002.
  const isGroupShared = (mode & 0o020) !== 0 && gid !== uid;
  if ((mode & 0o002) === 0 && !isGroupShared) return;
  const permissionsText = (mode & 0o7777).toString(8).padStart(3, "0");
  const text = `Others than the owner can write to the ${pathLabel}, ${path} (mode ${permissionsText}, user ${uid}, group ${gid}).`;
  throw new ConfigError(text, { hint: `Run: chmod go-w ${path}, ${alternativeHint}` });
}
