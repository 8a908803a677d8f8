import { globSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";

export interface WallClock {
  readonly environment: Readonly<Record<string, string>>;
  /** Sets the wall clock to so many seconds ahead of true time. */
  set(aheadS: number): void;
  cleanUp(pid: number): void;
}

const [FAKETIME] = globSync("/usr/lib/*/faketime/libfaketimeMT.so.1");

/** `cacheS`: seconds for which a process uses the value that it has read, because each read costs time. */
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
