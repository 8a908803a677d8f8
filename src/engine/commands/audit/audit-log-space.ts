import { statfsSync } from "node:fs";
import type { Log } from "../../../core/runtime/log.ts";
import type { Metrics } from "../../../core/runtime/metrics.ts";
import type { WriteRefusal } from "../gate.ts";
import type { AuditSize } from "./audit-log.ts";

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

  function effectiveLimit(): number {
    const freeBytes = options.freeBytes();
    return freeBytes === null ? maxBytes : Math.min(maxBytes, size.bytes() + freeBytes);
  }

  function formatSpaceNotice(limitBytes = effectiveLimit()): string | null {
    const auditSizeBytes = size.bytes();
    if (auditSizeBytes < WARNING_RATIO * limitBytes) return null;
    const usageText = `The audit log of commands has ${inMebibytes(auditSizeBytes)} of the ${inMebibytes(limitBytes)} MiB that are there for it`;
    const remedyText = limitBytes < maxBytes ? "free some space on its disk" : "raise commands.audit_max_bytes";
    return auditSizeBytes >= limitBytes
      ? `${usageText}; nothing is written to the building any more: ${remedyText}.`
      : `${usageText} (${Math.floor((100 * auditSizeBytes) / limitBytes)} %). When it is full nothing is written to the building: ${remedyText}.`;
  }

  return {
    full: (): WriteRefusal | null =>
      size.bytes() < maxBytes
        ? null
        : { reason: "audit-full", message: "The audit log is full; raise commands.audit_max_bytes." },
    notice: () => formatSpaceNotice(),
    look(): void {
      const limitBytes = effectiveLimit();
      metrics.auditBytes.set(size.bytes());
      metrics.auditLimitBytes.set(limitBytes);
      const isScarce = formatSpaceNotice(limitBytes) !== null;
      if (isScarce && !wasScarce)
        log.warn({ bytes: size.bytes(), limit: limitBytes }, "the audit log of commands is nearly full");
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

export function readFreeBytes(folder: string): number | null {
  try {
    const { bavail, bsize } = statfsSync(folder);
    return bavail * bsize;
  } catch {
    return null;
  }
}
