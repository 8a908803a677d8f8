import { globSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";

/** A wall clock for one process by libfaketime; the monotonic clock stays real. */
export interface WallClock {
  /** Environment of the process. */
  readonly environment: Readonly<Record<string, string>>;
  /** Sets the wall clock to so many seconds ahead of true time. */
  set(aheadS: number): void;
  /** Removes the shared memory of libfaketime after a process was killed. */
  cleanUp(pid: number): void;
}

const [FAKETIME] = globSync("/usr/lib/*/faketime/libfaketimeMT.so.1");

/**
 * Lies in a file of the folder. `cacheS`: for how many seconds a process believes what it has read; to read the file each
 * time costs a busy process more than all else.
 */
export function createWallClock(folder: string, cacheS: number): WallClock {
  const file = join(folder, "wall-clock");
  function set(aheadS: number): void {
    // Rename the file, so that a process never reads an incomplete line.
    writeFileSync(`${file}.new`, `${aheadS < 0 ? "" : "+"}${aheadS}\n`);
    renameSync(`${file}.new`, file);
  }
  set(0);
  return {
    environment:
      FAKETIME === undefined
        ? {}
        : {
            LD_PRELOAD: FAKETIME,
            FAKETIME_TIMESTAMP_FILE: file,
            ...(cacheS === 0 ? { FAKETIME_NO_CACHE: "1" } : { FAKETIME_CACHE_DURATION: String(cacheS) }),
            FAKETIME_DONT_FAKE_MONOTONIC: "1",
            NO_FAKE_STAT: "1",
          },
    set,
    cleanUp(pid) {
      for (const left of globSync(`/dev/shm/*faketime*_${pid}`)) rmSync(left, { force: true });
    },
  };
}
