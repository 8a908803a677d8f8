import { randomBytes } from "node:crypto";
import { ConfigError } from "../../core/errors/errors.ts";
import type { Alarm } from "../../core/model/building.ts";
import { type Event, makeEvent } from "../../core/model/event.ts";
import type { AgreedSilence } from "../../core/model/silence-event-data.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { createLoopService, type WorkerService } from "../../core/runtime/lifecycle.ts";
import type { Log } from "../../core/runtime/log.ts";
import { globMatches } from "../../core/values/glob.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { Store } from "../store/store.ts";

/**
 * Period without notifications of the selected alarms, e.g. while a lift is repaired. At the end of the silence, Plenum
 * notifies of the alarms that are still active.
 */
export interface Silence extends AgreedSilence {
  /** True after the event `silence-started` was emitted. */
  readonly isTold: boolean;
  /** Person who ended the silence early; the worker still has to emit `silence-ended`. */
  readonly endedBy?: string | null;
}

export const SILENCE_SET = "silence";

const MAX_SILENCES = 1_000;

type SilenceStore = Pick<Store, "commit" | "document">;

export async function getSilences(store: Pick<Store, "documents">): Promise<readonly Silence[]> {
  const silences = [...(await store.documents<Silence>(SILENCE_SET)).values()];
  return silences.sort((a, b) => a.from.localeCompare(b.from) || a.id.localeCompare(b.id));
}

export async function addSilence(store: Pick<Store, "commit" | "documents">, silence: Silence): Promise<void> {
  if ((await store.documents(SILENCE_SET)).size >= MAX_SILENCES)
    throw new ConfigError("There are 1,000 silences, as many as there can be; end some first.");
  await store.commit({ documents: [{ set: SILENCE_SET, insert: [[silence.id, silence]] }] });
}

/** Ends a silence, and emits `silence-ended` if `silence-started` was emitted. Returns false if the id is unknown. */
export async function endSilence(store: SilenceStore, id: string, time: string, by: string | null): Promise<boolean> {
  const silence = await store.document<Silence>(SILENCE_SET, id);
  if (silence === undefined) return false;
  await store.commit({
    documents: [{ set: SILENCE_SET, remove: [id] }],
    events: silence.isTold ? [buildSilenceEvent("silence-ended", silence, time, by)] : [],
  });
  return true;
}

/** Ends a silence early and emits no event: the worker of the source later emits `silence-ended`. */
export async function shortenSilence(store: SilenceStore, id: string, at: string, by: string | null): Promise<boolean> {
  const silence = await store.document<Silence>(SILENCE_SET, id);
  if (silence === undefined || silence.to <= at) return false;
  const endedSilence: Silence = { ...silence, to: at, endedBy: by };
  await store.commit({
    documents: [silence.isTold ? { set: SILENCE_SET, put: [[id, endedSilence]] } : { set: SILENCE_SET, remove: [id] }],
  });
  return true;
}

export async function startSilence(store: Pick<Store, "commit">, silence: Silence, time: string): Promise<void> {
  await store.commit({
    documents: [{ set: SILENCE_SET, put: [[silence.id, { ...silence, isTold: true }]] }],
    events: [buildSilenceEvent("silence-started", silence, time, silence.madeBy)],
  });
}

export interface SilenceRequest extends Pick<Silence, "source" | "site" | "priorities" | "name" | "alarm" | "madeBy"> {
  readonly fromMs: number;
  readonly toMs: number;
  readonly reason: string;
}

const MAX_SILENCE_DURATION_MS = 366 * 86_400_000;

export const MAX_SILENCE_REASON_LENGTH = 500;

export function buildSilence({ fromMs, toMs, reason, ...selection }: SilenceRequest, nowMs: number): Silence {
  if (toMs <= Math.max(fromMs, nowMs)) throw new ConfigError("The end has to be after the beginning, and after now.");
  if (toMs - fromMs > MAX_SILENCE_DURATION_MS) throw new ConfigError("A silence lasts a year at most.");
  const silenceReason = reason.trim();
  if (silenceReason === "" || silenceReason.length > MAX_SILENCE_REASON_LENGTH)
    throw new ConfigError(`Say why, in ${MAX_SILENCE_REASON_LENGTH} characters at most.`);
  return {
    ...selection,
    id: randomBytes(4).toString("hex"),
    from: isoUtc(fromMs),
    to: isoUtc(toMs),
    reason: silenceReason,
    isTold: false,
  };
}

export function isAlarmSilenced(silence: Silence, source: string, alarm: Alarm): boolean {
  return (
    (silence.source === null || silence.source === source) &&
    (silence.site === null || silence.site === alarm.site.id) &&
    (silence.priorities === null || silence.priorities.includes(alarm.trigger.priority)) &&
    (silence.alarm === null || silence.alarm === alarm.id) &&
    (silence.name === null || globMatches(silence.name, alarm.trigger.displayName))
  );
}

export function describeSilencedAlarms(
  { alarm, name, priorities, site, source }: Silence,
  displayNames: { readonly alarm?: string | undefined; readonly site?: string | undefined } = {},
): string {
  const selectionTexts = [
    alarm === null ? "alarms" : `alarm ${displayNames.alarm ?? alarm}`,
    name === null ? null : `named ${name}`,
    priorities === null ? null : `of priority ${priorities.join(", ")}`,
    site === null ? null : `of site ${displayNames.site ?? site}`,
    source === null ? null : `of source ${source}`,
  ].filter((part) => part !== null);
  return selectionTexts.length === 1 && alarm === null ? "all alarms" : selectionTexts.join(" ");
}

function buildSilenceEvent(
  type: "silence-started" | "silence-ended",
  { isTold: _, endedBy: _endedBy, ...silence }: Silence,
  time: string,
  by: string | null,
): Event {
  return makeEvent({
    type,
    source: "/plenum",
    subject: `silence/${silence.id}`,
    time,
    siteId: silence.site,
    data: { silence, by },
    facts: [silence.id],
  });
}

const SILENCE_CHECK_INTERVAL_MS = 5_000;

export function createSilenceKeeper(options: {
  readonly store: Pick<Store, "commit" | "document" | "documents">;
  readonly clock: Clock;
  readonly log: Log;
}): WorkerService {
  const { store, clock, log } = options;

  async function checkSilences(): Promise<number> {
    const now = isoUtc(clock.now());
    for (const silence of await getSilences(store)) {
      if (silence.to <= now) {
        await endSilence(store, silence.id, silence.to, silence.endedBy ?? null);
        log.info({ silence: silence.id, reason: silence.reason }, "a silence is over");
      } else if (silence.from <= now && !silence.isTold) {
        await startSilence(store, silence, silence.from);
        log.info({ silence: silence.id, reason: silence.reason, to: silence.to }, "a silence has begun");
      }
    }
    return SILENCE_CHECK_INTERVAL_MS;
  }

  return createLoopService("silences", {
    clock,
    alignSleeps: true,
    step: checkSilences,
    onFault: (error) => log.warn({ err: error }, "the silences could not be checked"),
  });
}
