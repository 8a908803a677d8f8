import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";

/** Writes of a process to the files of one folder, in order. */
export type Step =
  | Naming
  | { readonly kind: "sync"; readonly file: string }
  | { readonly kind: "write"; readonly file: string; readonly at: number; readonly bytes: Buffer }
  | { readonly kind: "append"; readonly file: string; readonly bytes: Buffer }
  | { readonly kind: "truncate"; readonly file: string; readonly size: number }
  /** The folder itself was synced: what was created and removed in it stays. */
  | { readonly kind: "sync-folder" }
  /** It said on standard output that a commit had returned. */
  | { readonly kind: "said"; readonly number: number };

/** A change of the folder, not of a file in it. */
export type Naming =
  | { readonly kind: "create"; readonly file: string }
  | { readonly kind: "remove"; readonly file: string }
  | { readonly kind: "rename"; readonly file: string; readonly to: string };

const CALLS =
  "openat,pwrite64,pwritev,write,writev,fsync,fdatasync,ftruncate,rename,renameat,renameat2,unlink,unlinkat";

/** Whether there is a strace that may trace here. */
export function canRecord(): boolean {
  try {
    execFileSync("strace", ["-o", "/dev/null", "true"], { stdio: "ignore" });
    return true;
  } catch {
    return false;
  }
}

/**
 * Runs a child of this folder and records what it does to a folder, on all its threads: SQLite works on the main one,
 * Node's files on another, of which there is only one, so that calls stay in their order.
 */
export function record(child: string, folder: string, traceFile: string): readonly Step[] {
  const options = ["-f", "-yy", "-xx", "-s", "100000000", "-e", `trace=${CALLS}`, "-o", traceFile];
  execFileSync("strace", [...options, process.execPath, join(import.meta.dirname, child), folder], {
    stdio: ["ignore", "ignore", "inherit"],
    env: { ...process.env, UV_THREADPOOL_SIZE: "1" },
  });
  return completeCalls(readFileSync(traceFile, "latin1").split("\n"))
    .map((line) => stepOf(line, folder))
    .filter((step) => step !== null);
}

/**
 * The calls as they returned. While several threads run, a call can be on two lines: `41 fsync(3 <unfinished ...>` and
 * `41 <... fsync resumed>) = 0`.
 */
function completeCalls(lines: readonly string[]): readonly string[] {
  const started = new Map<string, string>();
  return lines.flatMap((line) => {
    const [, thread = "", text = ""] = /^(\d+) +(.*)$/.exec(line) ?? [];
    const unfinished = /^(.*?) ?<unfinished \.\.\.>$/.exec(text);
    if (unfinished !== null) {
      started.set(thread, unfinished[1] ?? "");
      return [];
    }
    const resumed = /^<\.\.\. \w+ resumed>(.*)$/.exec(text);
    return [resumed === null ? text : `${started.get(thread) ?? ""}${resumed[1]}`];
  });
}

/** A line such as `pwrite64(23</folder/plenum.db>, "bytes", 4096, 0) = 4096`, with every text in hexadecimal. */
function stepOf(line: string, folder: string): Step | null {
  const call = /^(\w+)\((.*)\) += +(-?\d+)/.exec(line);
  if (call === null || Number(call[3]) < 0) return null;
  const [, name = "", text = ""] = call;
  const reportedNumber =
    name === "write" && text.startsWith("1<") ? /said (\d+)\n/.exec(bytesIn(text).toString()) : null;
  if (reportedNumber !== null) return { kind: "said", number: Number(reportedNumber[1]) };
  const paths = [...text.matchAll(/<((?:\\x[0-9a-f]{2})+)>/g)].map(([, hex]) => decoded(hex ?? "").toString());
  const names = [...text.matchAll(/"((?:\\x[0-9a-f]{2})*)"/g)].map(([, hex]) => decoded(hex ?? "").toString("latin1"));
  const ours = (path: string | undefined) => (path !== undefined && dirname(path) === folder ? basename(path) : null);
  if (name === "openat") {
    const file = ours(names[0]);
    return file !== null && text.includes("O_CREAT") ? { kind: "create", file } : null;
  }
  if (name.startsWith("unlink")) {
    const file = ours(names[0]);
    return file === null ? null : { kind: "remove", file };
  }
  if (name.startsWith("rename")) {
    const file = ours(names[0]);
    const to = ours(names[1]);
    return file === null || to === null ? null : { kind: "rename", file, to };
  }
  if ((name === "fsync" || name === "fdatasync") && paths[0] === folder) return { kind: "sync-folder" };
  const file = ours(paths[0]);
  // The index of the write-ahead log is shared memory, which does not survive a power cut.
  if (file === null || file.endsWith("-shm")) return null;
  if (name === "fsync" || name === "fdatasync") return { kind: "sync", file };
  const numbers = /, (\d+)(?:, (\d+))?$/.exec(text);
  if (name === "ftruncate") return { kind: "truncate", file, size: Number(/, (\d+)$/.exec(text)?.[1]) };
  if (name === "pwrite64") return { kind: "write", file, at: Number(numbers?.[2]), bytes: bytesIn(text) };
  // A file that is opened to append to has no position in its calls.
  if (name === "write") return { kind: "append", file, bytes: bytesIn(text) };
  throw new Error(`A write that is not understood: ${line.slice(0, 200)}`);
}

function bytesIn(text: string): Buffer {
  return decoded(/"((?:\\x[0-9a-f]{2})*)"/.exec(text)?.[1] ?? "");
}

function decoded(hex: string): Buffer {
  return Buffer.from(hex.replaceAll("\\x", ""), "hex");
}
