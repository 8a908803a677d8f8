import { existsSync, readdirSync, statfsSync, statSync } from "node:fs";
import { arch, cpus, freemem, loadavg, platform, release, tmpdir, totalmem, uptime, version } from "node:os";
import { join } from "node:path";
import { isoUtc } from "../../core/values/iso-utc.ts";

/** Names of variables that change what a worker does; their contents are nobody's business. */
const TELLING_VARIABLES =
  /^(PLENUM_.*|NODE_OPTIONS|NODE_EXTRA_CA_CERTS|SSL_CERT_(FILE|DIR)|(HTTPS?|NO|ALL)_PROXY|TZ|LANG)$/i;

/** The machine that the command runs on, which has to be the worker's own. */
export function machineFacts() {
  return {
    node: process.version,
    platform: `${platform()} ${arch()}`,
    system: `${release()} ${version()}`,
    container: ["/.dockerenv", "/run/.containerenv"].some((file) => existsSync(file)),
    processors: cpus().length,
    load: loadavg().map((each) => Math.round(each * 100) / 100),
    memoryBytes: totalmem(),
    memoryFreeBytes: freemem(),
    upSeconds: Math.round(uptime()),
    timeZone: Intl.DateTimeFormat().resolvedOptions().timeZone,
    user: process.geteuid?.() ?? null,
    variables: Object.keys(process.env)
      .filter((name) => TELLING_VARIABLES.test(name))
      .sort(),
  };
}

export interface DiskFacts {
  readonly where: "state" | "temporary files";
  readonly bytes: number | null;
  readonly freeBytes: number | null;
  readonly freeFiles: number | null;
}

/** Space on the disk of a folder, or of the nearest above it that is there. */
export function diskFacts(stateFolder: string): readonly DiskFacts[] {
  return [diskOf("state", stateFolder), diskOf("temporary files", tmpdir())];
}

function diskOf(where: DiskFacts["where"], folder: string): DiskFacts {
  try {
    const { bavail, bsize, blocks, ffree } = statfsSync(existsSync(folder) ? folder : join(folder, ".."));
    return { where, bytes: blocks * bsize, freeBytes: bavail * bsize, freeFiles: ffree };
  } catch {
    return { where, bytes: null, freeBytes: null, freeFiles: null };
  }
}

/** Of so many files in the state folder each is told. */
const FILES_TOLD = 50;

/** What lies in the state folder: names, sizes, rights and times. */
export function filesIn(folder: string) {
  return readdirSync(folder)
    .sort()
    .slice(0, FILES_TOLD)
    .map((name) => {
      const { size, mode, uid, mtimeMs } = statSync(join(folder, name));
      return { name, bytes: size, mode: (mode & 0o7777).toString(8), owner: uid, changedAt: isoUtc(mtimeMs) };
    });
}
