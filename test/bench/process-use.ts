import { readFileSync } from "node:fs";

/** What a process has used so far, as Linux counts it for all of its threads. */
export interface Used {
  /** User and system; Linux counts in hundredths of a second. */
  readonly processorMs: number;
  readonly writtenBytes: number;
  readonly residentBytes: number;
  readonly peakBytes: number;
}

export function usedBy(pid: number): Used {
  const stat = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1]?.split(" ") ?? [];
  const status = readFileSync(`/proc/${pid}/status`, "utf8");
  const written = /^write_bytes: (\d+)/m.exec(readFileSync(`/proc/${pid}/io`, "utf8"))?.[1];
  const bytes = (name: string) => Number(new RegExp(`${name}:\\s+(\\d+) kB`).exec(status)?.[1]) * 1_024;
  return {
    processorMs: (Number(stat[11]) + Number(stat[12])) * 10,
    writtenBytes: Number(written),
    residentBytes: bytes("VmRSS"),
    peakBytes: bytes("VmHWM"),
  };
}
