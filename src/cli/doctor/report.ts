import type { ConfigurationFacts } from "./configuration.ts";
import type { DiskFacts } from "./machine.ts";
import type { Reach } from "./reach.ts";
import type { StateFacts } from "./state.ts";
import type { WorkerFacts } from "./worker.ts";

/** What `plenum doctor` writes into one file. */
export interface DoctorReport {
  readonly format: "plenum-doctor/1";
  readonly madeAt: string;
  /** What is wrong, the most likely cause first: a sentence each, with what to do. */
  readonly troubles: readonly string[];
  readonly program: Readonly<Record<string, unknown>>;
  readonly machine: Readonly<Record<string, unknown>>;
  readonly disks: readonly DiskFacts[];
  readonly configuration: ConfigurationFacts;
  readonly state: StateFacts;
  readonly worker: WorkerFacts;
  /** Null where the configuration does not say what to ask. */
  readonly reach: readonly Reach[] | null;
  /** The end of a file that was named with --log; null when none was. */
  readonly log: { readonly file: string; readonly lines: readonly string[] } | null;
}

export type Facts = Omit<DoctorReport, "format" | "madeAt" | "troubles" | "program" | "machine">;
