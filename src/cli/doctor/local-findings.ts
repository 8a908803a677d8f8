import { existsSync, readdirSync, statfsSync, statSync } from "node:fs";
import { arch, cpus, freemem, loadavg, platform, release, tmpdir, totalmem, uptime, version } from "node:os";
import { join } from "node:path";
import { errorText } from "../../core/errors/errors.ts";
import { EVENT_KINDS, isTelemetry } from "../../core/model/event.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { valueOr } from "../../core/values/value-or.ts";
import { StateDamaged } from "../../engine/store/sqlite.ts";
import { checkStateInFolder, isStateIntact, type StateCheckReport } from "../../engine/store/state-check.ts";
import { refuseWritableByOthers } from "../../engine/store/state-folder.ts";
import { documentSet, type Store } from "../../engine/store/store.ts";
import type { StoredToken } from "../../engine/sync/stored-documents.ts";
import { readStateInFolder } from "../shell/open-worker-state.ts";

/** Environment variables that change how a worker runs. The report contains only their names. */
const REPORTED_VARIABLE_PATTERN =
  /^(PLENUM_.*|NODE_OPTIONS|NODE_EXTRA_CA_CERTS|SSL_CERT_(FILE|DIR)|(HTTPS?|NO|ALL)_PROXY|TZ|LANG)$/i;

export function describeMachine() {
  return {
    node: process.version,
    platform: `${platform()} ${arch()}`,
    system: `${release()} ${version()}`,
    container: ["/.dockerenv", "/run/.containerenv"].some((file) => existsSync(file)),
    processors: cpus().length,
    load: loadavg().map((loadAverage) => Math.round(loadAverage * 100) / 100),
    memoryBytes: totalmem(),
    memoryFreeBytes: freemem(),
    upSeconds: Math.round(uptime()),
    timeZone: Intl.DateTimeFormat().resolvedOptions().timeZone,
    user: process.geteuid?.() ?? null,
    variables: Object.keys(process.env)
      .filter((name) => REPORTED_VARIABLE_PATTERN.test(name))
      .sort(),
  };
}

export type DiskSpace = ReturnType<typeof readFolderDiskSpace>;

export function readDiskSpaces(stateFolder: string): readonly DiskSpace[] {
  return [readFolderDiskSpace("state", stateFolder), readFolderDiskSpace("temporary files", tmpdir())];
}

function readFolderDiskSpace(where: "state" | "temporary files", folder: string) {
  try {
    const { bavail, bsize, blocks, ffree } = statfsSync(existsSync(folder) ? folder : join(folder, ".."));
    return { where, bytes: blocks * bsize, freeBytes: bavail * bsize, freeFiles: ffree };
  } catch {
    return { where, bytes: null, freeBytes: null, freeFiles: null };
  }
}

const MAX_LISTED_FILES = 50;

function listStateFiles(folder: string) {
  return valueOr(() => {
    const fileNames = readdirSync(folder).sort().slice(0, MAX_LISTED_FILES);
    return fileNames.map((name) => {
      const { size, mode, uid, mtimeMs } = statSync(join(folder, name));
      return { name, bytes: size, mode: (mode & 0o7777).toString(8), owner: uid, changedAt: isoUtc(mtimeMs) };
    });
  }, []);
}

export interface StateFindings {
  readonly folder: string;
  readonly found: "good" | "none" | "damaged" | "unusable";
  readonly problems: readonly string[];
  readonly files: readonly object[];
  /** Result of the damage check; null without a state, or for a state that is too large. */
  readonly check: StateCheckReport | null;
  readonly content: StateContentSummary | null;
}

export type StateContentSummary = Awaited<ReturnType<typeof summarizeStateContent>>;

/** A larger state is not checked for damage, because comparing checksums takes 1 s for every 100 MiB. */
const MAX_CHECKED_STATE_BYTES = 512 * 1024 ** 2;
const MAX_REPORTED_EVENTS = 50;
const MAX_REPORTED_DEAD_LETTERS = 20;

export async function inspectStateFolder(folder: string, sources: readonly string[]): Promise<StateFindings> {
  const files = listStateFiles(folder);
  const stateFileBytes = files.reduce((sum, file) => sum + file.bytes, 0);
  if (!files.some(({ name }) => name.startsWith("plenum.db")))
    return { folder, found: "none", problems: listFolderProblems(folder), files, check: null, content: null };
  try {
    refuseWritableByOthers(folder);
    const check = stateFileBytes > MAX_CHECKED_STATE_BYTES ? null : checkStateInFolder(folder);
    if (check !== null && check.trouble.length > 0)
      return { folder, found: "damaged", problems: check.trouble, files, check, content: null };
    const content = await readStateInFolder(folder, (store) => summarizeStateContent(store, sources));
    const found = check === null || isStateIntact(check) ? "good" : "damaged";
    return { folder, found, problems: damagedRowTexts(check), files, check, content };
  } catch (error) {
    const found = error instanceof StateDamaged ? "damaged" : "unusable";
    return { folder, found, problems: [errorText(error)], files, check: null, content: null };
  }
}

function listFolderProblems(folder: string): readonly string[] {
  try {
    refuseWritableByOthers(folder);
    return [];
  } catch (error) {
    return [errorText(error)];
  }
}

function damagedRowTexts(check: StateCheckReport | null): readonly string[] {
  return (check?.tables ?? [])
    .filter(({ damaged }) => damaged > 0)
    .map(({ table, rows, damaged }) => `${damaged} of ${rows} rows of ${table} are damaged.`);
}

async function summarizeStateContent(store: Store, sources: readonly string[]) {
  const reportedEventKinds = EVENT_KINDS.filter((kind) => !isTelemetry(kind) && kind !== "worker-alive");
  const [{ schemaVersion, bytes }, { bytes: logBytes, pendingBytes }, events, [latestEvent], deadLetters, gaps] =
    await Promise.all([
      store.describe(),
      store.outbox.pressure(),
      store.outbox.latest(MAX_REPORTED_EVENTS, reportedEventKinds),
      store.outbox.latest(1),
      store.outbox.deadLetters(undefined, MAX_REPORTED_DEAD_LETTERS),
      store.outbox.gaps(),
    ]);
  const lostTokenAbilities = sources.map(async (source) => {
    const token = await store.document<StoredToken>(documentSet("token", source), "token");
    return Object.entries(token?.lost ?? {}).map(([what, since]) => ({ source, what, since }));
  });
  return {
    schemaVersion,
    bytes,
    log: { bytes: logBytes, pendingBytes },
    events: events.map(({ committedAt, event: { type: kind, source, subject } }) => ({
      at: committedAt,
      kind,
      source,
      subject,
    })),
    deadLetters: deadLetters.map(({ sink, at, event, reason }) => ({ sink, at, kind: event?.type ?? null, reason })),
    gaps: gaps.slice(-MAX_REPORTED_DEAD_LETTERS),
    lost: (await Promise.all(lostTokenAbilities)).flat(),
    lastCommittedAt: latestEvent?.committedAt ?? null,
  };
}

/** If the last commit is further in the future than this, the machine's clock is wrong. */
const MAX_CLOCK_LAG_MS = 60_000;

export function isMachineClockBehind(content: StateContentSummary | null, nowMs = systemClock.now()): boolean {
  const lastCommittedAt = content?.lastCommittedAt ?? null;
  return lastCommittedAt !== null && Date.parse(lastCommittedAt) > nowMs + MAX_CLOCK_LAG_MS;
}
