import { statfsSync } from "node:fs";
import type { Log } from "../../../core/runtime/log.ts";
import type { Metrics } from "../../../core/runtime/metrics.ts";
import type { Refusing } from "../gate.ts";
import type { AuditSize } from "./size.ts";

/**
 * The space that the audit log has: what is configured, or less where the disk has less. Nothing is taken out of the log
 * to make space, so that its chain stays whole; when it is full, nothing is written to the building any more.
 */
export interface AuditSpace {
  /** Why nothing may be written; null while there is space. */
  full(): Refusing | null;
  /** Warning from 80 % of the space; null below. */
  notice(): string | null;
  /** Keeps the metrics true, and says once in the log that the space becomes scarce. */
  look(): void;
  /** Other bytes that the log may take. */
  change(maxBytes: number): void;
}

const SCARCE = 0.8;
const MEBIBYTE = 1024 ** 2;

export function createAuditSpace(options: {
  readonly size: AuditSize;
  readonly maxBytes: number;
  /** Bytes that are left on the disk of the state; null where that cannot be known. */
  readonly freeBytes: () => number | null;
  readonly metrics: Metrics;
  readonly log: Log;
}): AuditSpace {
  const { size, metrics, log } = options;
  let { maxBytes } = options;
  let isTold = false;

  function limit(): number {
    const free = options.freeBytes();
    return free === null ? maxBytes : Math.min(maxBytes, size.bytes() + free);
  }

  function notice(most = limit()): string | null {
    const bytes = size.bytes();
    if (bytes < SCARCE * most) return null;
    const used = `The audit log of commands has ${inMebibytes(bytes)} of the ${inMebibytes(most)} MiB that are there for it`;
    const remedy = most < maxBytes ? "free some space on its disk" : "raise commands.audit_max_bytes";
    return bytes >= most
      ? `${used}; nothing is written to the building any more: ${remedy}.`
      : `${used} (${Math.floor((100 * bytes) / most)} %). When it is full nothing is written to the building: ${remedy}.`;
  }

  return {
    full: () =>
      size.bytes() < maxBytes
        ? null
        : { reason: "audit-full", message: "The audit log is full; raise commands.audit_max_bytes." },
    notice: () => notice(),
    look() {
      const most = limit();
      metrics.auditBytes.set(size.bytes());
      metrics.auditLimitBytes.set(most);
      const isScarce = notice(most) !== null;
      if (isScarce && !isTold) {
        log.warn({ bytes: size.bytes(), limit: most }, "the audit log of commands is nearly full");
      }
      isTold = isScarce;
    },
    change(next) {
      maxBytes = next;
    },
  };
}

function inMebibytes(bytes: number): string {
  return (bytes / MEBIBYTE).toFixed(bytes < 100 * MEBIBYTE ? 1 : 0);
}

/** Bytes that our user may still write on the disk of a folder; null where the system does not say. */
export function freeBytesOf(folder: string): number | null {
  try {
    const { bavail, bsize } = statfsSync(folder);
    return bavail * bsize;
  } catch {
    return null;
  }
}
