import { statfsSync } from "node:fs";
import type { Log } from "../../../core/runtime/log.ts";
import type { Metrics } from "../../../core/runtime/metrics.ts";
import type { WriteRefusal } from "../gate.ts";
import type { AuditLogSize } from "./audit-log.ts";

/** Limits the size of the audit log. When the audit log is full, no tag is written any more. */
export type AuditLogSpace = ReturnType<typeof createAuditLogSpace>;

const AUDIT_LOG_WARNING_RATIO = 0.8;
const MEBIBYTE_BYTES = 1024 ** 2;

export function createAuditLogSpace(options: {
  readonly size: AuditLogSize;
  readonly maxBytes: number;
  readonly freeDiskBytes: () => number | null;
  readonly metrics: Metrics;
  readonly log: Log;
}) {
  const { size, metrics, log } = options;
  let { maxBytes } = options;
  let wasSpaceScarce = false;

  function auditLogLimitBytes(): number {
    const freeDiskBytes = options.freeDiskBytes();
    return freeDiskBytes === null ? maxBytes : Math.min(maxBytes, size.bytes() + freeDiskBytes);
  }

  function formatSpaceNotice(limitBytes = auditLogLimitBytes()): string | null {
    const auditSizeBytes = size.bytes();
    if (auditSizeBytes < AUDIT_LOG_WARNING_RATIO * limitBytes) return null;
    const usageText = `The audit log of commands has ${formatMebibytes(auditSizeBytes)} of the ${formatMebibytes(limitBytes)} MiB that are there for it`;
    const remedyText = limitBytes < maxBytes ? "free some space on its disk" : "raise commands.audit_max_bytes";
    return auditSizeBytes >= limitBytes
      ? `${usageText}; nothing is written to the building any more: ${remedyText}.`
      : `${usageText} (${Math.floor((100 * auditSizeBytes) / limitBytes)} %). When it is full nothing is written to the building: ${remedyText}.`;
  }

  return {
    findFullRefusal: (): WriteRefusal | null =>
      size.bytes() < maxBytes
        ? null
        : { reason: "audit-full", message: "The audit log is full; raise commands.audit_max_bytes." },
    notice: () => formatSpaceNotice(),
    updateMetrics(): void {
      const limitBytes = auditLogLimitBytes();
      metrics.auditBytes.set(size.bytes());
      metrics.auditLimitBytes.set(limitBytes);
      const isSpaceScarce = formatSpaceNotice(limitBytes) !== null;
      if (isSpaceScarce && !wasSpaceScarce)
        log.warn({ bytes: size.bytes(), limit: limitBytes }, "the audit log of commands is nearly full");
      wasSpaceScarce = isSpaceScarce;
    },
    setMaxBytes(nextMaxBytes: number): void {
      maxBytes = nextMaxBytes;
    },
  };
}

function formatMebibytes(bytes: number): string {
  return (bytes / MEBIBYTE_BYTES).toFixed(bytes < 100 * MEBIBYTE_BYTES ? 1 : 0);
}

export function readFreeDiskBytes(folder: string): number | null {
  try {
    const { bavail, bsize } = statfsSync(folder);
    return bavail * bsize;
  } catch {
    return null;
  }
}
