import { readFileSync, statSync } from "node:fs";
import { isDeepStrictEqual } from "node:util";
import type { Clock } from "../../core/runtime/clock.ts";
import { OrderlyStop, startServiceOnce, type WorkerService } from "../../core/runtime/lifecycle.ts";
import type { Log } from "../../core/runtime/log.ts";
import { endsWithin, retryUntilDone } from "../../core/runtime/waiting.ts";
import { type KnownTagIds, type NamesFile, parseNamesFile } from "../../engine/sync/inventory/tag-names-file.ts";
import type { TagNamesById } from "../../engine/sync/inventory/tag-naming.ts";
import { watchFile } from "./file-watch.ts";

const WATCH_STOP_TIMEOUT_MS = 5_000;
const MAX_LOGGED_PROBLEMS = 10;

/** Reads the names file of a source at the start and after each change. A file with mistakes changes no names. */
export function createTagNamesFileWatch(options: {
  readonly source: string;
  /** Path of the names file; undefined if the source has none. */
  readonly file: string | undefined;
  readonly clock: Clock;
  readonly log: Log;
  knownTagIds(): KnownTagIds;
  changeNames(names: TagNamesById): void;
  commitNames(signal: AbortSignal): Promise<void>;
}): WorkerService & { changeFile(file: string | undefined): Promise<void>; notices(): readonly string[] } {
  const { clock, log, source } = options;
  let { file } = options;
  const stopController = new AbortController();
  let runSignal: AbortSignal | null = null;
  let fileWatch: WorkerService | null = null;
  let pendingNamesLoad: Promise<unknown> = Promise.resolve();
  let reportedFindings: Omit<NamesFile, "entries"> = { problems: [], unknownTags: [] };

  async function loadNames(signal: AbortSignal): Promise<boolean> {
    const knownTagIds = options.knownTagIds();
    const { entries, ...findings } = file === undefined ? NO_NAMES : readNamesFile(file, knownTagIds);
    reportFindings(findings);
    if (findings.problems.length > 0) return false;
    options.changeNames(entries);
    await retryUntilDone({
      ...{ clock, signal, work: () => options.commitNames(signal) },
      onFault: (error) => log.warn({ file, err: error }, "changed names of tags could not be stored yet"),
    });
    return knownTagIds.size > 0;
  }

  function reportFindings(findings: typeof reportedFindings): void {
    if (isDeepStrictEqual(findings, reportedFindings)) return;
    reportedFindings = findings;
    const problems = findings.problems.slice(0, MAX_LOGGED_PROBLEMS);
    const unknownTags = findings.unknownTags.slice(0, MAX_LOGGED_PROBLEMS);
    if (problems.length > 0) log.warn({ file, problems }, "the names file cannot be used, so the last names stay");
    else if (unknownTags.length > 0) log.warn({ file, unknownTags }, "the names file has entries for unknown tags");
    else log.info({ file }, "the names file has no mistakes");
  }

  function startWatching(signal: AbortSignal): void {
    pendingNamesLoad = loadNames(signal).catch((error: unknown) => {
      if (!signal.aborted) log.error({ file, err: error }, "the names file could not be read");
    });
    if (file === undefined) return;
    const reloadNames = () => loadNames(signal);
    fileWatch = watchFile({
      name: `names file of ${source}`,
      file,
      clock,
      log,
      onStable: reloadNames,
      onMissing: reloadNames,
    });
    void fileWatch.start(signal);
  }

  const namesFileService = startServiceOnce({
    name: `names ${source}`,
    async start(signal) {
      runSignal = AbortSignal.any([signal, stopController.signal]);
      startWatching(runSignal);
    },
    async stop(deadlineMs) {
      runSignal = null;
      stopController.abort(new OrderlyStop());
      await fileWatch?.stop(deadlineMs);
      await endsWithin(clock, deadlineMs, pendingNamesLoad);
    },
  });

  return {
    ...namesFileService,
    async changeFile(nextFile) {
      if (nextFile === file) return;
      file = nextFile;
      await fileWatch?.stop(WATCH_STOP_TIMEOUT_MS);
      fileWatch = null;
      if (runSignal !== null) startWatching(runSignal);
    },
    notices() {
      const [firstProblem, ...furtherProblems] = reportedFindings.problems;
      if (firstProblem === undefined) return [];
      const unlistedProblemsText =
        furtherProblems.length === 0 ? "" : ` ${furtherProblems.length} more: run \`plenum names check\`.`;
      return [
        `The names file of ${source} cannot be used, so the last names stay in force. ${firstProblem}${unlistedProblemsText}`,
      ];
    },
  };
}

const NO_NAMES: NamesFile = { entries: new Map(), problems: [], unknownTags: [] };

/** Reads and checks a names file. Reports an unreadable file as a problem. */
export function readNamesFile(file: string, knownTagIds: KnownTagIds): NamesFile {
  const noNamesWithProblem = (problem: string) => ({ ...NO_NAMES, problems: [problem] });
  try {
    // A named pipe would block the read.
    if (!statSync(file).isFile()) return noNamesWithProblem(`${file} is not a file.`);
    return parseNamesFile(readFileSync(file), knownTagIds);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    const missingText = "does not exist; write it with `plenum names --write`";
    return noNamesWithProblem(`${file} ${code === "ENOENT" ? missingText : `cannot be read (${code})`}.`);
  }
}
