import type { Alarm } from "../../../core/model/building.ts";
import type { Log } from "../../../core/runtime/log.ts";
import type { Metrics } from "../../../core/runtime/metrics.ts";
import type { Settlement } from "./overtaken.ts";
import type { Sifted } from "./pending-verification.ts";

/** Reports the records of the list of active alarms that changed nothing, or not what they seem to say. */
export interface UnverifiedRecords {
  /** Counts them in the metrics; answers a message about each kind, for the status of the job. */
  tell(sifted: Sifted, ends: Settlement, unreadable: readonly string[]): readonly string[];
}

export function createUnverifiedRecords(
  source: string,
  metrics: Pick<Metrics, "alarmRecordsDoubtful">,
  log: Pick<Log, "warn">,
): UnverifiedRecords {
  let wereContradictory = 0;

  return {
    tell({ contradictory, unreadable }, { believed, stale }, withoutId) {
      const count = (reason: string, number: number) => metrics.alarmRecordsDoubtful.set({ source, reason }, number);
      count("contradictory", contradictory.length);
      count("stale", stale.size);
      count("unreadable", unreadable.length + withoutId.length);
      if (contradictory.length > 0 && wereContradictory === 0) {
        const alarms = contradictory.length;
        log.warn({ alarms }, "the list of active alarms has records that contradict themselves");
      }
      wereContradictory = contradictory.length;
      if (believed.size > 0) {
        const alarms = believed.size;
        log.warn({ alarms }, "the service lists alarms as active and does not know their end any more: believed");
      }
      return [
        ...contradictionOf(contradictory),
        ...goneBack(believed),
        ...staleRecords(stale),
        ...unreadableIds(unreadable),
        ...unreadableRecords(withoutId, "active"),
      ];
    },
  };
}

function contradictionOf(records: readonly Alarm[]): readonly string[] {
  const [first] = records;
  if (first === undefined) return [];
  const { id, status, resolvedAtRaw } = first;
  return [
    `Records of the list of active alarms that contradict themselves: ${records.length}, such as alarm ${id} with the status "${status}" and the end ${resolvedAtRaw ?? "null"}. These alarms stay as they were.`,
  ];
}

function goneBack(ids: ReadonlySet<string>): readonly string[] {
  if (ids.size === 0) return [];
  return [
    `Alarms that are active again, because the service does not know their end any more: ${ids.size} (${someOf(ids)}).`,
  ];
}

function staleRecords(ids: ReadonlySet<string>): readonly string[] {
  if (ids.size === 0) return [];
  return [
    `Alarms that are in the list of active alarms and in the list of resolved ones: ${ids.size} (${someOf(ids)}). They stay resolved.`,
  ];
}

function unreadableIds(ids: readonly string[]): readonly string[] {
  if (ids.length === 0) return [];
  return [`Records of active alarms of which only the id can be read: ${ids.length} (${someOf(ids)}).`];
}

/** A message about records that cannot be read, with what the service sent in place of the first one. */
export function unreadableRecords(records: readonly string[], list: "active" | "resolved"): readonly string[] {
  const [first] = records;
  if (first === undefined) return [];
  return [`Records of the list of ${list} alarms without a usable id: ${records.length}, such as ${first}.`];
}

function someOf(ids: Iterable<string>): string {
  const [one, two, three, more] = ids;
  const named = [one, two, three].filter((id) => id !== undefined).join(", ");
  return more === undefined ? named : `${named} …`;
}
