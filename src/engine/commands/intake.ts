import type { Accept, Arrival } from "../../core/connector.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import type { ClockCheck } from "../../core/runtime/clock-check.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { AllowList } from "./allow-list.ts";
import type { BuildingView } from "./building-view.ts";
import { type Command, type Reason, tagKey } from "./command.ts";
import type { CommandsConfig } from "./config.ts";
import { checkArrival, type Refusing } from "./gate.ts";
import type { Accepted, Journal } from "./journal.ts";
import type { KillSwitch } from "./kill-switch.ts";
import { parsePayload, type Request, type Second } from "./payload.ts";
import type { Refusals } from "./refusals.ts";
import type { Warning } from "./result-event.ts";
import { isRestoreId } from "./timed.ts";

/**
 * The first half of a command, from its arrival until it is durable. It ends with a rejection that is published and audited, or in the
 * journal as `accepted`. It never waits for the service, because the broker is acknowledged only afterwards.
 */
export interface IntakeOptions {
  /** The current configuration. */
  readonly config: () => CommandsConfig;
  readonly allowList: AllowList;
  readonly view: BuildingView;
  readonly journal: Journal;
  readonly refusals: Refusals;
  readonly killSwitch: KillSwitch;
  /** Why nothing at all may be written. */
  readonly closed: () => Refusing | null;
  readonly clock: Clock;
  readonly clockSkewMs: (source: string) => number | null;
  readonly clockDoubt: Pick<ClockCheck, "stepped">;
  /** Takes the accepted commands further. */
  readonly dispatch: (accepted: Accepted) => void;
  /** A command of this source may leave now, because a second person has agreed. */
  readonly onSecond: (source: string) => void;
  readonly count: (outcome: string, reason: string | null) => void;
}

/** Commands for one tag beyond which the rest is a flood; a person or a sound program corrects itself less often. */
const FLOODS = [
  { count: 20, withinMs: 60_000, period: "a minute" },
  { count: 120, withinMs: 3_600_000, period: "an hour" },
] as const;
/** As arrivals from the command line say where they come from. */
const OPERATOR = "operator";
const LONGEST_MS = 3_600_000;

export function createIntake(options: IntakeOptions): Accept {
  const { allowList, clock, config, journal } = options;
  const acceptedAt = new Map<string, readonly number[]>();

  function notice(arrival: Arrival, id: string, request: Subject | null, why: Why): Warning {
    const source = allowList.sourceOf(request?.source ?? arrival.source);
    const tagId = request?.tagId ?? arrival.tagId;
    const { reason, message } = why;
    return {
      commandId: id,
      source,
      siteId: source === null || tagId === null ? null : (allowList.entry(source, tagId)?.site_id ?? null),
      tagId,
      requested: request?.value ?? null,
      outcome: why.outcome ?? (reason === "duplicate" || reason === "expired" ? reason : "rejected"),
      reason,
      message,
      by: senderOf(arrival),
      replyTo: arrival.replyTo,
      correlation: arrival.correlation,
      receivedAtMs: arrival.receivedAtMs,
    };
  }

  async function refuse(notices: readonly Warning[]): Promise<void> {
    for (const { outcome, reason } of notices) options.count(outcome, reason);
    await options.refusals.tell(notices);
  }

  /** Counts a command of a tag, unless there were too many lately. */
  function flood(tag: { readonly source: string; readonly tagId: string }): Refusing | null {
    const now = clock.monotonic();
    const key = tagKey(tag);
    const lately = (acceptedAt.get(key) ?? []).filter((at) => at > now - LONGEST_MS);
    const broken = FLOODS.find(({ count, withinMs }) => lately.filter((at) => at > now - withinMs).length >= count);
    acceptedAt.set(key, broken === undefined ? [...lately, now] : lately);
    if (broken === undefined) return null;
    const message = `More than ${broken.count} commands for tag ${tag.tagId} within ${broken.period}.`;
    return { reason: "flood", message };
  }

  async function judge(arrival: Arrival, request: Request): Promise<Accepted | { readonly refused: Why }> {
    if (journal.knows(request.id)) return { refused: KNOWN };
    if (isRestoreId(request.id)) return { refused: RESERVED };
    const source = allowList.sourceOf(request.source);
    const entry = source === null ? undefined : allowList.entry(source, request.tagId);
    const isListed = source !== null && entry !== undefined;
    const verdict = checkArrival({
      request,
      retained: arrival.retained,
      expirySeconds: arrival.expirySeconds,
      via: arrival.via,
      receivedAtMs: arrival.receivedAtMs,
      defaultTtlMs: config().default_ttl,
      maxTtlMs: config().max_ttl,
      maxPerHour: config().max_per_hour,
      maxRestoreAfterMs: config().max_restore_after,
      clockSkewMs: source === null ? null : options.clockSkewMs(source),
      clockStep: options.clockDoubt.stepped(),
      entry,
      held: isListed ? await options.view.tag(source, request.tagId) : undefined,
      token: isListed ? await options.view.token(source) : undefined,
      past: {
        ofTag: isListed ? journal.wear.ofTag(source, request.tagId) : [],
        lastHour: isListed ? journal.wear.lastHour(source) : 0,
      },
    });
    if ("refused" in verdict) return verdict;
    if (!isListed) throw new Error("the gate let through what it does not know");
    const flooded = flood({ source, tagId: request.tagId });
    if (flooded !== null) return { refused: flooded };
    const { id, tagId, value, expect, forMs } = request;
    const needsSecond = entry.second_person;
    const command: Command = {
      id,
      source,
      siteId: entry.site_id,
      tagId,
      value,
      expect,
      forMs,
      needsSecond,
      via: arrival.via,
      by: senderOf(arrival),
      receivedAt: isoUtc(arrival.receivedAtMs),
      expiresAt: isoUtc(verdict.expiresAtMs),
      replyTo: arrival.replyTo,
      correlation: arrival.correlation,
    };
    return { command, entry };
  }

  /** Why a second person's word does not count; null when it does. */
  function wrongSecond(arrival: Arrival, { id, value }: Second): Why | null {
    const command = journal.unseconded(id);
    if (command === undefined || (arrival.source !== null && arrival.source !== command.source)) {
      return { reason: "wrong-second", message: `No command ${id} waits for a second person.` };
    }
    if (command.value !== value) {
      return {
        reason: "wrong-second",
        message: `Command ${id} asks for ${command.value}, not for ${value}.`,
      };
    }
    if (arrival.via === OPERATOR && command.via === OPERATOR) {
      const message = "The command came from the command line too; the second person has to agree over MQTT.";
      return { reason: "wrong-second", message };
    }
    if (!arrival.retained) return null;
    return { reason: "retained", message: "A second person's word must not be retained." };
  }

  async function hearSecond(arrival: Arrival, second: Second): Promise<void> {
    const command = journal.unseconded(second.id) ?? null;
    const wrong = options.closed() ?? wrongSecond(arrival, second);
    if (wrong === null && (await journal.second(second.id, senderOf(arrival)))) {
      if (command !== null) options.onSecond(command.source);
      return;
    }
    const late: Why = { reason: "wrong-second", message: `Command ${second.id} has ended meanwhile.` };
    const why = wrong ?? late;
    await refuse([notice(arrival, `${second.id}/second`, command, why)]);
  }

  async function stopWriting(arrival: Arrival, id: string): Promise<void> {
    await options.killSwitch.throwIt(senderOf(arrival), isoUtc(clock.now()));
    const message = `Writing is stopped; ${options.killSwitch.remedy} to go on.`;
    await refuse([notice(arrival, id, null, { outcome: "confirmed", reason: "stop", message })]);
  }

  return async (arrival) => {
    if (arrival.payload.byteLength > config().max_payload_bytes) {
      const message = `The message is larger than ${config().max_payload_bytes} bytes.`;
      return refuse([notice(arrival, unnamed(arrival), null, { reason: "too-large", message })]);
    }
    const parsed = parsePayload(arrival, config().bare_values);
    if ("stop" in parsed) return stopWriting(arrival, parsed.stop.id);
    if ("refused" in parsed) {
      return refuse([notice(arrival, parsed.refused.id ?? unnamed(arrival), null, parsed.refused)]);
    }
    if ("second" in parsed) return hearSecond(arrival, parsed.second);
    const { requests } = parsed;
    const closed = options.closed();
    if (closed !== null) {
      // An id that was used before is not rejected again: its sender gets the known result.
      const why = ({ id }: Request) => (journal.knows(id) ? KNOWN : closed);
      return refuse(requests.map((request) => notice(arrival, request.id, request, why(request))));
    }

    const good: Accepted[] = [];
    const bad: Warning[] = [];
    for (const request of requests) {
      const verdict = await judge(arrival, request);
      if ("refused" in verdict) bad.push(notice(arrival, request.id, request, verdict.refused));
      else good.push(verdict);
    }
    const fresh = new Set(await journal.accept(good));
    for (const accepted of fresh) options.dispatch(accepted);
    for (const request of requests) {
      const twin = good.find(({ command }) => command.id === request.id);
      if (twin !== undefined && !fresh.has(twin)) bad.push(notice(arrival, request.id, request, KNOWN));
    }
    await refuse(bad);
  };
}

/** Subject of a warning. */
type Subject = Pick<Request, "source" | "tagId" | "value">;

interface Why {
  readonly reason: Reason;
  readonly message: string;
  readonly outcome?: Warning["outcome"];
}

const KNOWN: Why = { reason: "duplicate", message: "This id was used before." };

const RESERVED: Why = {
  reason: "invalid",
  message: "An id that ends in /restore stands for putting an old value back; choose another.",
};

/** The way that it came, and the name that the sender gives itself: the broker does not say who it was. */
function senderOf(arrival: Arrival): string {
  const way = `${arrival.via} ${arrival.topic}`.slice(0, 300);
  const user =
    arrival.properties.user
      ?.replace(/\p{Cc}/gu, " ")
      .slice(0, 64)
      .toWellFormed() ?? "";
  return user === "" ? way : `${way}, says ${user}`;
}

function unnamed(arrival: Arrival): string {
  return arrival.correlation?.slice(0, 128) ?? `unnamed-${arrival.receivedAtMs}`;
}
