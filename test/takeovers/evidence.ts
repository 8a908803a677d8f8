import type { AlarmTransition } from "#src/simulator/alarms.ts";
import type { LoggedRequest, WrittenValue } from "#src/simulator/request-log.ts";
import type { FaultKind } from "./faults.ts";

/** What is known at the end of a run, from those who had no part in it. Times are milliseconds since 1970, by one clock. */
export interface Evidence {
  /** When every source was polled for the first time; before that nothing is judged by time. */
  readonly fromMs: number;
  /** Polling goes on within so many milliseconds. */
  readonly soonMs: number;
  readonly services: readonly ServiceRecord[];
  readonly told: readonly Told[];
  readonly log: readonly LoggedEvent[];
  /** By source, up to which position of the log everything has to be at the receivers. */
  readonly due: ReadonlyMap<string, number>;
  readonly takeovers: readonly Takeover[];
  readonly faults: readonly FaultRecord[];
  readonly commands: readonly SentCommand[];
}

/** One source, by its service's own record. */
export interface ServiceRecord {
  readonly source: string;
  /** `tokenName` is the member that asked. */
  readonly requests: readonly LoggedRequest[];
  readonly writes: readonly WrittenValue[];
  readonly transitions: readonly AlarmTransition[];
  /** The tag that is raised by one all the time, and how far it came. */
  readonly counter: { readonly tagId: string; readonly last: number };
}

export const ENDS = ["webhook", "mqtt"] as const;
export type End = (typeof ENDS)[number];

/** An arrival at a receiver, in order. */
export interface Told {
  readonly end: End;
  readonly atMs: number;
  readonly id: string;
  /** Within which order has to be kept: source and subject, or the topic. */
  readonly key: string;
  readonly source: string;
  readonly type: string;
  /** Over all that was told, so that a repetition can be compared. */
  readonly digest: string;
  /** What the judges want to know of the content; null for other kinds and for messages that are a state only. */
  readonly fact: Fact | null;
}

export type Fact =
  | { readonly of: "alarm"; readonly alarmId: string; readonly triggeredAtMs: number }
  | { readonly of: "value"; readonly tagId: string; readonly value: number | boolean | null }
  | {
      readonly of: "command";
      readonly commandId: string;
      /** Null where it is only said to be accepted. */
      readonly outcome: string | null;
      readonly reason: string | null;
    };

/** An event as it stands in the database. */
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
  /** Whom it met; null where it met the database. */
  readonly member: string | null;
  readonly fromMs: number;
  /** When it was over, as far as whoever made it is concerned. */
  readonly endMs: number;
  /** When the next one began. */
  readonly toMs: number;
  readonly story: string;
}

export interface SentCommand {
  readonly id: string;
  readonly source: string;
  readonly tagId: string;
  /** No two commands have the same. */
  readonly value: number;
  /** The same message was sent twice. */
  readonly isRepeated: boolean;
}

/** What a judge has to say. */
export interface Verdict {
  /** What must not have happened, as sentences. */
  readonly problems: readonly string[];
  /** For the table at the end: name and figure. */
  readonly figures: readonly (readonly [name: string, figure: string])[];
}

/** Seconds, as they are shown: the median, what 95 % are below, the most, and of how many. */
export function spread(foundMs: readonly number[]): string {
  const sorted = foundMs.toSorted((a, b) => a - b);
  const at = (share: number) => ((sorted[Math.floor(share * (sorted.length - 1))] ?? 0) / 1_000).toFixed(1);
  return `${at(0.5)} s, ${at(0.95)} s, ${at(1)} s of ${sorted.length}`;
}

/** So many are told, and how many more there are. */
export function some(texts: readonly string[], most = 5): string {
  const more = texts.length > most ? ` and ${texts.length - most} more` : "";
  return `${texts.slice(0, most).join("; ")}${more}`;
}
