import type { AnyEvent, Event } from "../../core/model/event.ts";
import type { LoggedEvent } from "../../engine/store/store.ts";
import { shownEvent } from "../../ui/status/rows.ts";
import { clockTime } from "../shell/terminal.ts";

/** Prints log lines and important events as short lines for a person at the terminal. Ignores values. */
export interface TerminalFeed {
  /** Receives the lines of the log (JSON). */
  readonly destination: { write(line: string): void };
  event(logged: LoggedEvent): void;
  /** Receives the reasons why the worker is not ready; empty when it is. */
  readiness(reasons: readonly string[]): void;
  say(text: string): void;
}

/** Milliseconds in which the same sentence is not repeated. */
const SAID_FOR_MS = 5 * 60_000;
/** pino level of warnings. */
const WARN = 40;
/** Log messages that the start text replaces. */
const SAID_ANYWAY = ["started", "Plenum is running"];

export function createTerminalFeed(print: (line: string) => void, now: () => number): TerminalFeed {
  const said = new Map<string, number>();
  /** Sinks with a problem in the log; `/readyz` reports one only after a while. */
  const troubled = new Set<string>();
  let wasReady: boolean | null = null;
  let initial = 0;

  function say(mark: " " | "!", text: string): void {
    const atMs = now();
    if (atMs - (said.get(text) ?? Number.NEGATIVE_INFINITY) < SAID_FOR_MS) return;
    for (const [old, saidMs] of said) if (atMs - saidMs >= SAID_FOR_MS) said.delete(old);
    said.set(text, atMs);
    print(`${clockTime(atMs)} ${mark} ${text}`);
  }

  /** Prints only the count of alarms that were active at the first listing: there can be hundreds. */
  function sayInitial(): void {
    if (initial > 0) say(" ", `${initial} ${initial === 1 ? "alarm is" : "alarms are"} active already.`);
    initial = 0;
  }

  return {
    destination: {
      write(line) {
        const { level, msg, ...fields } = JSON.parse(line) as LogLine;
        if (fields.sink !== undefined && level < WARN) troubled.delete(fields.sink);
        if (fields.sink !== undefined && fields.problem !== undefined) troubled.add(fields.sink);
        if (!SAID_ANYWAY.includes(msg)) say(level >= WARN ? "!" : " ", logText(msg, fields));
      },
    },
    event(logged) {
      const event = logged.event as AnyEvent;
      if (event.type === "alarm-raised" && event.data.initial) {
        initial += 1;
        return;
      }
      sayInitial();
      const words = labelOf(event);
      if (words !== null) print(`${clockTime(now())} ${words.mark} ${words.text}: ${shownEvent(logged).gist}`);
    },
    readiness(reasons) {
      sayInitial();
      const isReady = reasons.length === 0;
      if (isReady && wasReady !== true) say(" ", readyText(wasReady === null, [...troubled]));
      for (const reason of reasons) say("!", reason);
      if (isReady !== wasReady) for (const text of said.keys()) if (/^All is well/.test(text)) said.delete(text);
      wasReady = isReady;
    },
    say: (text) => say(" ", text),
  };
}

/** Text for a ready worker; names the sinks that still have a problem. */
function readyText(isFirst: boolean, troubled: readonly string[]): string {
  if (troubled.length > 0) return `All is well but for what was said of ${troubled.join(", ")}.`;
  return isFirst ? "All is well: polls, state, sinks." : "All is well again.";
}

interface LogLine extends LogFields {
  readonly level: number;
  readonly msg: string;
}

interface LogFields {
  readonly sink?: string;
  readonly source?: string;
  readonly job?: string;
  readonly problem?: string;
  readonly reason?: string;
  readonly err?: { readonly message?: string; readonly hint?: string };
  /** Problems of a configuration, its changes, and the changes that wait for a restart. */
  readonly problems?: readonly string[];
  readonly changes?: readonly string[];
  readonly pending?: readonly string[];
}

/** Joins the component, the message and the reason of a log line. */
function logText(msg: string, fields: LogFields): string {
  const { sink, source, job, problem, reason, err } = fields;
  const who = [source, job, sink].filter((each) => each !== undefined).join(", ");
  const first = who === "" ? msg : `${who}: ${msg}`;
  const { problems = [], changes = [], pending = [] } = fields;
  const why = [problem, reason, err?.message, err?.hint, ...[...problems, ...changes, ...pending].map(ended)];
  return sentence([ended(first), ...why.filter((each) => typeof each === "string")].join(" "));
}

function ended(text: string): string {
  return /[.!?:]$/.test(text) ? text : `${text}.`;
}

/** Capitalizes the first letter, unless a name comes first. */
function sentence(text: string): string {
  return /^[a-z]+([.!?]$|[.!?]? )/.test(text) ? text.charAt(0).toUpperCase() + text.slice(1) : text;
}

/** Label of an event; null for events that are not printed. */
function labelOf(event: AnyEvent): { readonly mark: " " | "!"; readonly text: string } | null {
  const priority = event.priority === undefined ? "" : ` ${event.priority}`;
  switch (event.type) {
    case "alarm-raised":
    case "alarm-retriggered":
      return { mark: "!", text: `Alarm${priority}${event.data.late ? " (found late)" : ""}` };
    case "alarm-resolved":
      return { mark: " ", text: `Alarm${priority} over` };
    case "alarm-acknowledged":
      return { mark: " ", text: `Alarm${priority} acknowledged` };
    case "alarm-vanished":
      return { mark: "!", text: `Alarm${priority} is no longer listed, and its end was not reported` };
    case "gateway-offline":
      return { mark: "!", text: "Gateway offline" };
    case "gateway-online":
      return { mark: " ", text: "Gateway online" };
    case "command-result":
      return { mark: isSuccess(event) ? " " : "!", text: `Write to ${event.data.tagId ?? "a tag"}` };
    case "command-not-restored":
      return { mark: "!", text: "An old value could not be put back" };
    case "token-expiring":
      return { mark: "!", text: "The token expires" };
    default:
      return null;
  }
}

function isSuccess({ data }: Event<"command-result">): boolean {
  return data.outcome === "confirmed" || data.outcome === "accepted-unverified";
}
