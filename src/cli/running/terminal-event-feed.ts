import type { AnyEvent } from "../../core/model/event.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import { sleepFor } from "../../core/runtime/waiting.ts";
import type { LoggedEvent, Store } from "../../engine/store/store.ts";
import { eventSummary } from "../../ui/status/event-summary.ts";
import { formatClockTime } from "../shell/terminal-output.ts";

export type TerminalFeed = ReturnType<typeof createTerminalFeed>;

const REPEAT_PAUSE_MS = 5 * 60_000;
const WARNING_LEVEL = 40;
const HIDDEN_LOG_MESSAGES = ["started", "Plenum is running"];

/** Prints log lines and important events, but no values, as short lines for a person. */
export function createTerminalFeed(printLine: (line: string) => void, now: () => number) {
  const lastPrintedMs = new Map<string, number>();
  /** Names of sinks that logged a problem, because `/readyz` reports a failing sink only after a while. */
  const failingSinks = new Set<string>();
  let wasReady: boolean | null = null;
  let initialAlarmCount = 0;

  function printOnce(mark: " " | "!", text: string): void {
    const atMs = now();
    if (atMs - (lastPrintedMs.get(text) ?? Number.NEGATIVE_INFINITY) < REPEAT_PAUSE_MS) return;
    for (const [oldText, oldMs] of lastPrintedMs) if (atMs - oldMs >= REPEAT_PAUSE_MS) lastPrintedMs.delete(oldText);
    lastPrintedMs.set(text, atMs);
    printLine(`${formatClockTime(atMs)} ${mark} ${text}`);
  }

  /** Prints only the number of alarms that were active at the start, because there can be hundreds. */
  function printInitialAlarmCount(): void {
    if (initialAlarmCount > 0)
      printOnce(" ", `${initialAlarmCount} ${initialAlarmCount === 1 ? "alarm is" : "alarms are"} active already.`);
    initialAlarmCount = 0;
  }

  return {
    destination: {
      write(line: string) {
        const { level, msg, ...fields } = JSON.parse(line) as LogLineFields;
        if (fields.sink !== undefined && level < WARNING_LEVEL) failingSinks.delete(fields.sink);
        if (fields.sink !== undefined && fields.problem !== undefined) failingSinks.add(fields.sink);
        if (!HIDDEN_LOG_MESSAGES.includes(msg)) printOnce(level >= WARNING_LEVEL ? "!" : " ", formatLog(msg, fields));
      },
    },
    printEvent(loggedEvent: LoggedEvent) {
      const event = loggedEvent.event as AnyEvent;
      if (event.type === "alarm-raised" && event.data.initial) {
        initialAlarmCount += 1;
        return;
      }
      printInitialAlarmCount();
      const text = describeEvent(event);
      if (text !== null) printLine(`${formatClockTime(now())} ${text}: ${eventSummary(loggedEvent).summary}`);
    },
    printReadiness(reasons: readonly string[]) {
      printInitialAlarmCount();
      const isReady = reasons.length === 0;
      if (isReady && wasReady !== true) printOnce(" ", formatReadiness(wasReady === null, [...failingSinks]));
      for (const reason of reasons) printOnce("!", reason);
      if (isReady !== wasReady)
        for (const text of lastPrintedMs.keys()) if (/^All is well/.test(text)) lastPrintedMs.delete(text);
      wasReady = isReady;
    },
    printMessage: (text: string) => printOnce(" ", text),
  };
}

function formatReadiness(isFirstReport: boolean, failingSinks: readonly string[]): string {
  if (failingSinks.length > 0) return `All is well but for what was said of ${failingSinks.join(", ")}.`;
  return isFirstReport ? "All is well: polls, state, sinks." : "All is well again.";
}

interface LogLineFields {
  readonly level: number;
  readonly msg: string;
  readonly sink?: string;
  readonly source?: string;
  readonly job?: string;
  readonly problem?: string;
  readonly reason?: string;
  readonly err?: { readonly message?: string; readonly hint?: string };
  /** Fields of the log line about a reloaded configuration; `pending` changes wait for a restart. */
  readonly problems?: readonly string[];
  readonly changes?: readonly string[];
  readonly pending?: readonly string[];
}

function formatLog(msg: string, fields: Omit<LogLineFields, "level" | "msg">): string {
  const { sink, source, job, problem, reason, err } = fields;
  const logOriginText = [source, job, sink].filter((origin) => origin !== undefined).join(", ");
  const firstSentence = logOriginText === "" ? msg : `${logOriginText}: ${msg}`;
  const { problems = [], changes = [], pending = [] } = fields;
  const details = [problem, reason, err?.message, err?.hint, ...[...problems, ...changes, ...pending].map(addFullStop)];
  return capitalize([addFullStop(firstSentence), ...details.filter((detail) => typeof detail === "string")].join(" "));
}

const addFullStop = (text: string): string => (/[.!?:]$/.test(text) ? text : `${text}.`);

/** Starts a text with a capital letter, unless the text starts with a name. */
function capitalize(text: string): string {
  return /^[a-z]+([.!?]$|[.!?]? )/.test(text) ? text.charAt(0).toUpperCase() + text.slice(1) : text;
}

/** Texts of the feed by event kind; `{alarm}` is the alarm with its priority. */
const EVENT_TEXTS: Readonly<Partial<Record<AnyEvent["type"], string>>> = {
  "alarm-raised": "! {alarm}{late}",
  "alarm-retriggered": "! {alarm}{late}",
  "alarm-resolved": "  {alarm} over",
  "alarm-acknowledged": "  {alarm} acknowledged",
  "alarm-vanished": "! {alarm} is no longer listed, and its end was not reported",
  "gateway-offline": "! Gateway offline",
  "gateway-online": "  Gateway online",
  "command-not-restored": "! An old value could not be put back",
  "token-expiring": "! The token expires",
};

/** Returns null for a kind of event that the feed does not print. */
function describeEvent({ type, data, priority }: AnyEvent): string | null {
  if (type === "command-result") {
    const isWriteSuccessful = ["confirmed", "accepted-unverified"].includes(data.outcome);
    return `${isWriteSuccessful ? " " : "!"} Write to ${data.tagId ?? "a tag"}`;
  }
  const alarmText = priority === undefined ? "Alarm" : `Alarm ${priority}`;
  const lateText = "late" in data && data.late ? " (found late)" : "";
  return EVENT_TEXTS[type]?.replace("{alarm}", alarmText).replace("{late}", lateText) ?? null;
}

const EVENTS_PER_PAGE = 250;
const POLL_INTERVAL_MS = 1_000;

export async function* newEventPages({ outbox }: Pick<Store, "outbox">, position: number, signal: AbortSignal) {
  let lastPosition = position;
  while (!signal.aborted) {
    const page = await outbox.after(lastPosition, EVENTS_PER_PAGE);
    lastPosition = page.at(-1)?.position ?? lastPosition;
    if (page.length > 0) yield page;
    else await sleepFor(systemClock, POLL_INTERVAL_MS, signal);
  }
}
