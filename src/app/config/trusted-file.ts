import { accessSync, constants, lstatSync, readlinkSync, type Stats, statSync } from "node:fs";
import { dirname, join, parse, resolve, sep } from "node:path";
import { ConfigError } from "../../core/errors/errors.ts";
import { systemCodeOf } from "../../core/errors/local-failure.ts";

export const ALLOW_WRITABLE = "--allow-writable-config";

type FileOwnership = Pick<Stats, "mode" | "uid" | "gid">;

const LINK_LABEL = "link to the configuration file";
const STICKY_BIT = 0o1000;
/** As many as Linux follows. */
const MAX_LINKS = 40;

/** Throws `ConfigError` if another user could change the file, its folder, or a link on the way. */
export function refuseUntrustedFile(file: string, own: number | null = process.geteuid?.() ?? null): void {
  const marks = own === null ? undefined : statOf(file);
  if (own === null || marks === undefined) return;
  refuseForeignWriter("configuration file", file, marks, own);
  // A pipe of the shell, such as `--config <(decrypt plenum.yaml.age)`, is in no folder.
  if (!marks.isFile()) return;
  for (const { path, isLink } of linksAndFoldersOf(file)) {
    const found = isLink ? ownershipOfLink(path) : ownershipOfFolder(path);
    if (found === undefined) continue;
    refuseForeignWriter(isLink ? LINK_LABEL : "folder of the configuration file", path, found, own);
  }
}

/** Undefined if the path is missing, or the permission model of Node.js hides it. */
function statOf(path: string, look: typeof statSync = statSync): Stats | undefined {
  try {
    return look(path, { throwIfNoEntry: false });
  } catch {
    return undefined;
  }
}

interface PathStep {
  readonly path: string;
  readonly isLink: boolean;
}

/** Each link that the system follows from a path to its file, each link's folder, and the folder of the file. */
function linksAndFoldersOf(file: string): readonly PathStep[] {
  const steps: PathStep[] = [];
  let rest = resolve(file);
  for (let links = 0; links < MAX_LINKS; links += 1) {
    const link = firstLink(rest);
    if (link === null) return [...steps, { path: dirname(rest), isLink: false }];
    steps.push({ path: dirname(link), isLink: false }, { path: link, isLink: true });
    rest = resolve(dirname(link), readlinkSync(link), `.${rest.slice(link.length)}`);
  }
  return steps;
}

function firstLink(path: string): string | null {
  const { root } = parse(path);
  let current = root;
  for (const part of path.slice(root.length).split(sep)) {
    current = join(current, part);
    if (statOf(current, lstatSync)?.isSymbolicLink() === true) return current;
  }
  return null;
}

/** The system ignores the mode of a link. */
function ownershipOfLink(link: string): FileOwnership | undefined {
  const marks = statOf(link, lstatSync);
  return marks && { mode: 0, uid: marks.uid, gid: marks.gid };
}

/** In a sticky folder (`/tmp`) others cannot replace what is ours. */
function ownershipOfFolder(folder: string): FileOwnership | undefined {
  const marks = statOf(folder);
  if (marks === undefined) return undefined;
  const { mode, uid, gid } = marks;
  const isSafe = (mode & STICKY_BIT) !== 0 || isVolumeOfKubernetes(folder, uid);
  return { mode: isSafe ? 0 : mode, uid, gid };
}

/** True for a ConfigMap: Kubernetes mounts its folder read-only with mode 0777. Bind mounts are not exempt. */
function isVolumeOfKubernetes(folder: string, uid: number): boolean {
  const data = statOf(join(folder, "..data"), lstatSync);
  if (uid !== 0 || data?.isSymbolicLink() !== true) return false;
  try {
    accessSync(folder, constants.W_OK);
    return false;
  } catch (error) {
    return systemCodeOf(error) === "EROFS";
  }
}

function refuseForeignWriter(what: string, path: string, { mode, uid, gid }: FileOwnership, own: number): void {
  const otherwise = `or, if you trust everybody who may write there, run with ${ALLOW_WRITABLE}.`;
  if (uid !== own && uid !== 0) {
    throw new ConfigError(`The ${what}, ${path}, belongs to another user (${uid}; this one is ${own}).`, {
      hint: `Run: chown ${what === LINK_LABEL ? "-h " : ""}${own} ${path}, ${otherwise}`,
    });
  }
  // With a umask of 002 each user has a group of the same number, with no other member.
  const isGroupShared = (mode & 0o020) !== 0 && gid !== uid;
  if ((mode & 0o002) === 0 && !isGroupShared) return;
  const bits = (mode & 0o7777).toString(8).padStart(3, "0");
  const text = `Others than the owner can write to the ${what}, ${path} (mode ${bits}, user ${uid}, group ${gid}).`;
  throw new ConfigError(text, { hint: `Run: chmod go-w ${path}, ${otherwise}` });
}
