import type { AlarmTransition } from "#src/simulator/alarms.ts";
import type { LoggedRequest, LoggedTagWrite } from "#src/simulator/request-log.ts";
import type { FaultKind } from "./faults.ts";

/** Records of one run, made outside the members. Times are milliseconds since 1970 by one clock. */
export interface Evidence {
  readonly fromMs: number;
  readonly graceMs: number;
  readonly services: readonly ServiceRecord[];
  readonly received: readonly ReceivedEvent[];
  readonly log: readonly LoggedEvent[];
  readonly due: ReadonlyMap<string, number>;
  readonly takeovers: readonly Takeover[];
  readonly faults: readonly FaultRecord[];
  readonly commands: readonly SentCommand[];
}

export interface ServiceRecord {
  readonly source: string;
  readonly requests: readonly LoggedRequest[];
  readonly writes: readonly LoggedTagWrite[];
  readonly transitions: readonly AlarmTransition[];
  readonly counter: { readonly tagId: string; readonly last: number };
}

export const ENDS = ["webhook", "mqtt"] as const;
export type End = (typeof ENDS)[number];

export interface ReceivedEvent {
  readonly end: End;
  readonly atMs: number;
  readonly id: string;
  readonly key: string;
  readonly source: string;
  readonly type: string;
  readonly digest: string;
  readonly fact: Fact | null;
}

export type Fact =
  | { readonly of: "alarm"; readonly alarmId: string; readonly triggeredAtMs: number }
  | { readonly of: "value"; readonly tagId: string; readonly value: number | boolean | null }
  | {
      readonly of: "command";
      readonly commandId: string;
      readonly outcome: string | null;
      readonly reason: string | null;
    };

export interface LoggedEvent {
  readonly source: string;
  readonly position: number;
  readonly id: string;
}

export interface Takeover {
  readonly source: string;
  readonly from: string | null;
  readonly to: string;
  readonly epoch: number;
  readonly atMs: number;
  readonly reason: string;
}

export interface FaultRecord {
  readonly kind: FaultKind;
  readonly member: string | null;
  readonly fromMs: number;
  readonly endMs: number;
  readonly toMs: number;
  readonly story: string;
}

export interface SentCommand {
  readonly id: string;
  readonly source: string;
  readonly tagId: string;
  readonly value: number;
  readonly isRepeated: boolean;
}

export interface Verdict {
  readonly problems: readonly string[];
  readonly figures: readonly (readonly [name: string, figure: string])[];
}

export function spread(foundMs: readonly number[]): string {
  const sorted = foundMs.toSorted((a, b) => a - b);
  const at = (share: number) => ((sorted[Math.floor(share * (sorted.length - 1))] ?? 0) / 1_000).toFixed(1);
  return `${at(0.5)} s, ${at(0.95)} s, ${at(1)} s of ${sorted.length}`;
}

export function summarizeTexts(texts: readonly string[], most = 5): string {
  const more = texts.length > most ? ` and ${texts.length - most} more` : "";
  return `${texts.slice(0, most).join("; ")}${more}`;
}
