import { accessSync, constants, lstatSync, readlinkSync, type Stats, statSync } from "node:fs";
import { dirname, join, parse, resolve, sep } from "node:path";
import { ConfigError } from "../../core/errors/errors.ts";
import { systemCodeOf } from "../../core/errors/local-failure.ts";

export const ALLOW_WRITABLE = "--allow-writable-config";

type Marks = Pick<Stats, "mode" | "uid" | "gid">;

const LINK = "link to the configuration file";
const STICKY = 0o1000;
/** As many as Linux follows. */
const MOST_LINKS = 40;

/** Throws `ConfigError` if another user could change the file, its folder, or a link on the way. */
export function refuseUntrustedFile(file: string, own: number | null = process.geteuid?.() ?? null): void {
  const marks = own === null ? undefined : marksOf(file);
  if (own === null || marks === undefined) return;
  judge("configuration file", file, marks, own);
  // A pipe of the shell, such as `--config <(decrypt plenum.yaml.age)`, is in no folder.
  if (!marks.isFile()) return;
  for (const { path, isLink } of wayTo(file)) {
    const found = isLink ? linkMarks(path) : folderMarks(path);
    if (found === undefined) continue;
    judge(isLink ? LINK : "folder of the configuration file", path, found, own);
  }
}

/** Undefined if the path is missing, or the permission model of Node.js hides it. */
function marksOf(path: string, look: typeof statSync = statSync): Stats | undefined {
  try {
    return look(path, { throwIfNoEntry: false });
  } catch {
    return undefined;
  }
}

interface Step {
  readonly path: string;
  readonly isLink: boolean;
}

/** Each link that the system follows from a path to its file, each link's folder, and the folder of the file. */
function wayTo(file: string): readonly Step[] {
  const steps: Step[] = [];
  let rest = resolve(file);
  for (let links = 0; links < MOST_LINKS; links += 1) {
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
    if (marksOf(current, lstatSync)?.isSymbolicLink() === true) return current;
  }
  return null;
}

/** The system ignores the mode of a link. */
function linkMarks(link: string): Marks | undefined {
  const marks = marksOf(link, lstatSync);
  return marks && { mode: 0, uid: marks.uid, gid: marks.gid };
}

/** In a sticky folder (`/tmp`) others cannot replace what is ours. */
function folderMarks(folder: string): Marks | undefined {
  const marks = marksOf(folder);
  if (marks === undefined) return undefined;
  const { mode, uid, gid } = marks;
  const isSafe = (mode & STICKY) !== 0 || isVolumeOfKubernetes(folder, uid);
  return { mode: isSafe ? 0 : mode, uid, gid };
}

/** True for a ConfigMap: Kubernetes mounts its folder read-only with mode 0777. Bind mounts are not exempt. */
function isVolumeOfKubernetes(folder: string, uid: number): boolean {
  const data = marksOf(join(folder, "..data"), lstatSync);
  if (uid !== 0 || data?.isSymbolicLink() !== true) return false;
  try {
    accessSync(folder, constants.W_OK);
    return false;
  } catch (error) {
    return systemCodeOf(error) === "EROFS";
  }
}

function judge(what: string, path: string, { mode, uid, gid }: Marks, own: number): void {
  const otherwise = `or, if you trust everybody who may write there, run with ${ALLOW_WRITABLE}.`;
  if (uid !== own && uid !== 0) {
    throw new ConfigError(`The ${what}, ${path}, belongs to another user (${uid}; this one is ${own}).`, {
      hint: `Run: chown ${what === LINK ? "-h " : ""}${own} ${path}, ${otherwise}`,
    });
  }
  // With a umask of 002 each user has a group of the same number, with no other member.
  const isGroupShared = (mode & 0o020) !== 0 && gid !== uid;
  if ((mode & 0o002) === 0 && !isGroupShared) return;
  const bits = (mode & 0o7777).toString(8).padStart(3, "0");
  const text = `Others than the owner can write to the ${what}, ${path} (mode ${bits}, user ${uid}, group ${gid}).`;
  throw new ConfigError(text, { hint: `Run: chmod go-w ${path}, ${otherwise}` });
}
