import { LocalFailure } from "./errors.ts";

const MACHINE_FAULTS_BY_CODE: Readonly<Record<string, readonly [fault: string, hint: string]>> = {
  EMFILE: ["no file may be opened any more", "Raise the limit of open files (ulimit -n, LimitNOFILE)."],
  ENFILE: ["no file may be opened any more", "Raise the system's limit of open files (fs.file-max)."],
  ENOMEM: ["there is no memory left", "Give it more memory, or end what takes it."],
  ENOBUFS: ["there is no memory left for the network", "Give it more memory, or end what takes it."],
  EAI_MEMORY: ["there is no memory left", "Give it more memory, or end what takes it."],
  EADDRNOTAVAIL: ["it has no free port or no such address", "End what holds its connections."],
  ENOSPC: ["its disk is full", "Make room on it."],
  EIO: ["its disk could not be read or written", "Look into the system's log for the disk."],
  ESTALE: ["a file of another machine is out of reach", "Look after what is mounted there."],
  EAGAIN: ["it has no resources left at the moment", "End what takes them."],
};

export const MACHINE_RETRY_MS = 5_000;

/** Returns null for an error code that may have another cause than this machine. */
export function findMachineFailure(code: string, messageStart: string, cause?: unknown): LocalFailure | null {
  const faultMessage = MACHINE_FAULTS_BY_CODE[code];
  if (faultMessage === undefined) return null;
  const [fault, hint] = faultMessage;
  return new LocalFailure(`${messageStart}, because of this machine: ${fault} (${code}).`, { hint, cause });
}

export function systemErrorCode(error: unknown): string {
  const { code } = error as { readonly code?: unknown };
  return typeof code === "string" ? code : "";
}
