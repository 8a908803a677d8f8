import { statfsSync } from "node:fs";
import type { Log } from "../../../core/runtime/log.ts";
import type { Metrics } from "../../../core/runtime/metrics.ts";
import type { WriteRefusal } from "../gate.ts";
import type { AuditSize } from "./size.ts";

/** Limits the audit log to the configured bytes or the free disk. When the log is full, writing closes. */
export type AuditSpace = ReturnType<typeof createAuditSpace>;

const WARNING_RATIO = 0.8;
const MEBIBYTE_BYTES = 1024 ** 2;

export function createAuditSpace(options: {
  readonly size: AuditSize;
  readonly maxBytes: number;
  readonly freeBytes: () => number | null;
  readonly metrics: Metrics;
  readonly log: Log;
}) {
  const { size, metrics, log } = options;
  let { maxBytes } = options;
  let wasScarce = false;

  function limit(): number {
    const free = options.freeBytes();
    return free === null ? maxBytes : Math.min(maxBytes, size.bytes() + free);
  }

  function notice(most = limit()): string | null {
    const bytes = size.bytes();
    if (bytes < WARNING_RATIO * most) return null;
    const used = `The audit log of commands has ${inMebibytes(bytes)} of the ${inMebibytes(most)} MiB that are there for it`;
    const remedy = most < maxBytes ? "free some space on its disk" : "raise commands.audit_max_bytes";
    return bytes >= most
      ? `${used}; nothing is written to the building any more: ${remedy}.`
      : `${used} (${Math.floor((100 * bytes) / most)} %). When it is full nothing is written to the building: ${remedy}.`;
  }

  return {
    full: (): WriteRefusal | null =>
      size.bytes() < maxBytes
        ? null
        : { reason: "audit-full", message: "The audit log is full; raise commands.audit_max_bytes." },
    notice: () => notice(),
    look(): void {
      const most = limit();
      metrics.auditBytes.set(size.bytes());
      metrics.auditLimitBytes.set(most);
      const isScarce = notice(most) !== null;
      if (isScarce && !wasScarce)
        log.warn({ bytes: size.bytes(), limit: most }, "the audit log of commands is nearly full");
      wasScarce = isScarce;
    },
    change(nextMaxBytes: number): void {
      maxBytes = nextMaxBytes;
    },
  };
}

function inMebibytes(bytes: number): string {
  return (bytes / MEBIBYTE_BYTES).toFixed(bytes < 100 * MEBIBYTE_BYTES ? 1 : 0);
}

export function freeBytesOf(folder: string): number | null {
  try {
    const { bavail, bsize } = statfsSync(folder);
    return bavail * bsize;
  } catch {
    return null;
  }
}
