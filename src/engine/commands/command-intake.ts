import type { AcceptCommand, CommandMessage } from "../../core/connector.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import type { ClockCheck } from "../../core/runtime/clock-check.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { TAGS_PER_REQUEST } from "../source/source.ts";
import type { TagAllowList } from "./allow-list.ts";
import { type Command, type CommandEndingReason, tagKey } from "./command.ts";
import { parseCommandPayload, type SecondPersonApproval, type TagWriteRequest } from "./command-payload.ts";
import type { CommandsConfig } from "./config.ts";
import { checkCommandArrival, type WriteRefusal } from "./gate.ts";
import type { AcceptedCommand, CommandScene, Journal } from "./journal.ts";
import type { KillSwitch } from "./kill-switch.ts";
import { isRestoreCommandId } from "./pending-value-restores.ts";
import type { CommandRefusalReporter } from "./refusal-reporter.ts";
import type { EstimateCost } from "./request-cost-of-message.ts";
import type { MessageResult } from "./result-event.ts";
import type { StoredBuildingReader } from "./stored-building-reader.ts";
import type { WriteLocks } from "./write-locks.ts";

type CommandTarget = Pick<TagWriteRequest, "source" | "tagId" | "value">;

interface Refusal {
  readonly reason: CommandEndingReason;
  readonly message: string;
  readonly outcome?: MessageResult["outcome"];
}

interface RefusedRequest {
  readonly request: TagWriteRequest;
  readonly refused: Refusal;
}

const DUPLICATE_COMMAND_ID_REFUSAL: Refusal = { reason: "duplicate", message: "This id was used before." };
const RESERVED_COMMAND_ID_REFUSAL: Refusal = {
  reason: "invalid",
  message: "An id that ends in /restore stands for putting an old value back; choose another.",
};

/** Limits of commands for one tag; Plenum refuses further commands within the period. */
const FLOOD_RATES = [
  { count: 20, withinMs: 60_000, period: "a minute" },
  { count: 120, withinMs: 3_600_000, period: "an hour" },
] as const;
const LONGEST_FLOOD_PERIOD_MS = 3_600_000;
const OPERATOR_TOPIC = "operator";

/** Rejects or journals each command message. Sends no HTTP request, because the MQTT broker waits for the result. */
export function createCommandIntake(options: {
  readonly config: () => CommandsConfig;
  readonly allowList: TagAllowList;
  readonly buildingReader: StoredBuildingReader;
  readonly journal: Journal;
  readonly refusalReporter: CommandRefusalReporter;
  readonly killSwitch: KillSwitch;
  readonly findWritingRefusal: () => WriteRefusal | null;
  readonly locks: Pick<WriteLocks, "findRefusal">;
  readonly estimateCost: EstimateCost;
  readonly clock: Clock;
  readonly clockSkewMs: (source: string) => number | null;
  readonly clockCheck: Pick<ClockCheck, "latestStep">;
  readonly dispatch: (acceptedCommand: AcceptedCommand) => void;
  readonly onSecondApproval: (source: string) => void;
  readonly countOutcome: (outcome: string, reason: string | null) => void;
}): AcceptCommand {
  const { allowList, clock, config, journal, killSwitch } = options;
  const acceptTimesByTag = new Map<string, readonly number[]>();

  function toResult(
    arrival: CommandMessage,
    id: string,
    target: CommandTarget | null,
    refusal: Refusal,
  ): MessageResult {
    const source = allowList.resolveSource(target?.source ?? arrival.source);
    const tagId = target?.tagId ?? arrival.tagId;
    const { reason, message } = refusal;
    return {
      commandId: id,
      source,
      siteId: source === null || tagId === null ? null : (allowList.findEntry(source, tagId)?.site_id ?? null),
      tagId,
      requested: target?.value ?? null,
      outcome: refusal.outcome ?? (reason === "duplicate" || reason === "expired" ? reason : "rejected"),
      reason,
      message,
      by: describeCommandSender(arrival),
      replyTo: arrival.replyTo,
      correlation: arrival.correlation,
      receivedAtMs: arrival.receivedAtMs,
    };
  }

  async function reportResults(...results: readonly MessageResult[]): Promise<void> {
    for (const { outcome, reason } of results) options.countOutcome(outcome, reason);
    await options.refusalReporter.reportResults(results);
  }

  function checkCommandFlood(source: string, tagId: string): WriteRefusal | null {
    const now = clock.monotonic();
    const key = tagKey({ source, tagId });
    const timesMs = (acceptTimesByTag.get(key) ?? []).filter((at) => at > now - LONGEST_FLOOD_PERIOD_MS);
    const rate = FLOOD_RATES.find(({ count, withinMs }) => timesMs.filter((at) => at > now - withinMs).length >= count);
    acceptTimesByTag.set(key, rate === undefined ? [...timesMs, now] : timesMs);
    if (rate === undefined) return null;
    return { reason: "flood", message: `More than ${rate.count} commands for tag ${tagId} within ${rate.period}.` };
  }

  async function checkTagWriteRequest(
    arrival: CommandMessage,
    request: TagWriteRequest,
    acceptedBeforeCount: number,
  ): Promise<AcceptedCommand | { readonly refused: Refusal }> {
    if (journal.isKnownId(request.id)) return { refused: DUPLICATE_COMMAND_ID_REFUSAL };
    if (isRestoreCommandId(request.id)) return { refused: RESERVED_COMMAND_ID_REFUSAL };
    const source = allowList.resolveSource(request.source);
    const allowedTag = source === null ? undefined : allowList.findEntry(source, request.tagId);
    const isTagAllowed = source !== null && allowedTag !== undefined;
    const user = parseUserName(arrival);
    const arrivalCheck = checkCommandArrival({
      ...arrival,
      request,
      defaultTtlMs: config().default_ttl,
      maxTtlMs: config().max_ttl,
      maxPerHour: config().max_per_hour,
      maxRestoreAfterMs: config().max_restore_after,
      clockSkewMs: source === null ? null : options.clockSkewMs(source),
      clockStep: options.clockCheck.latestStep(),
      allowedTag,
      storedTag: isTagAllowed ? await options.buildingReader.tag(source, request.tagId) : undefined,
      tokenInfo: isTagAllowed ? await options.buildingReader.tokenInfo(source) : undefined,
      lockRefusal: isTagAllowed
        ? await options.locks.findRefusal({
            source,
            siteId: allowedTag.site_id,
            tagId: request.tagId,
            via: arrival.via,
            user,
          })
        : null,
      pastWrites: {
        writeTimesMs: isTagAllowed ? journal.writeCounts.timesOfTagMs(source, request.tagId) : [],
        writesLastHour: isTagAllowed ? journal.writeCounts.countLastHour(source) + acceptedBeforeCount : 0,
      },
    });
    if ("refused" in arrivalCheck) return arrivalCheck;
    if (!isTagAllowed) throw new Error("The gate accepted a tag that is not on the allow-list.");
    const floodRefusal = checkCommandFlood(source, request.tagId);
    if (floodRefusal !== null) return { refused: floodRefusal };
    const { id, tagId, value, expect, forMs } = request;
    const { via, receivedAtMs, replyTo, correlation } = arrival;
    const command: Command = {
      ...{ id, source, siteId: allowedTag.site_id, tagId, value, expect, forMs },
      needsSecond: allowedTag.second_person,
      ...{ via, user },
      by: describeCommandSender(arrival),
      receivedAt: isoUtc(receivedAtMs),
      expiresAt: isoUtc(arrivalCheck.expiresAtMs),
      replyTo,
      correlation,
    };
    return { command, allowedTag };
  }

  async function checkRequests(arrival: CommandMessage, requests: readonly TagWriteRequest[]) {
    const acceptedCommands: AcceptedCommand[] = [];
    const refusedRequests: RefusedRequest[] = [];
    const scene: CommandScene = { isChecked: requests.length <= TAGS_PER_REQUEST };
    const writingRefusal = options.findWritingRefusal();
    for (const request of requests) {
      const requestCheck =
        writingRefusal === null
          ? await checkTagWriteRequest(arrival, request, acceptedCommands.length)
          : // Report a repeated id as a duplicate even while writing is closed.
            { refused: journal.isKnownId(request.id) ? DUPLICATE_COMMAND_ID_REFUSAL : writingRefusal };
      if ("refused" in requestCheck) refusedRequests.push({ request, refused: requestCheck.refused });
      else acceptedCommands.push({ ...requestCheck, scene });
    }
    return { acceptedCommands, refusedRequests };
  }

  /** Returns why a message with more than 20 writes is refused as a whole. */
  function findMessageRefusal(
    acceptedCommands: readonly AcceptedCommand[],
    [firstRefused]: readonly RefusedRequest[],
  ): RefusedRequest | { readonly request: null; readonly refused: Refusal } | null {
    if (firstRefused !== undefined) {
      const { request, refused } = firstRefused;
      const message = `No write of the message was accepted, because of tag ${request.tagId}: ${refused.message}`;
      return { request, refused: { ...refused, message } };
    }
    const waitingTagId = acceptedCommands.find(({ command }) => command.needsSecond)?.command.tagId;
    if (waitingTagId !== undefined) {
      const message = `Tag ${waitingTagId} needs a second person, so send its command singly.`;
      return { request: null, refused: { reason: "not-allowed", message } };
    }
    const { waitsMs } = options.estimateCost(acceptedCommands);
    const remainingMs = acceptedCommands.map(({ command }) => Date.parse(command.expiresAt) - clock.now());
    const [neededSeconds, remainingSeconds] = [Math.max(...waitsMs), Math.min(...remainingMs)].map((ms) =>
      Math.ceil(ms / 1_000),
    );
    if (waitsMs.every((waitMs, index) => waitMs < (remainingMs[index] ?? 0))) return null;
    const message = `The last write may leave after ${neededSeconds} s, and the time to live is ${remainingSeconds} s; nothing was written.`;
    return { request: null, refused: { reason: "expired", message } };
  }

  function checkSecondApproval(arrival: CommandMessage, { id, value }: SecondPersonApproval): Refusal | null {
    const command = journal.findUnsecondedCommand(id);
    let message: string | null = null;
    if (command === undefined || (arrival.source !== null && arrival.source !== command.source)) {
      message = `No command ${id} waits for a second person.`;
    } else if (command.value !== value) {
      message = `Command ${id} asks for ${command.value}, not for ${value}.`;
    } else if (arrival.via === OPERATOR_TOPIC && command.via === OPERATOR_TOPIC)
      message = "The command came from the command line too; the second person has to agree over MQTT.";
    if (message !== null) return { reason: "wrong-second", message };
    if (!arrival.retained) return null;
    return { reason: "retained", message: "A second person's word must not be retained." };
  }

  async function acceptSecondApproval(arrival: CommandMessage, second: SecondPersonApproval): Promise<void> {
    const command = journal.findUnsecondedCommand(second.id) ?? null;
    const refusal = options.findWritingRefusal() ?? checkSecondApproval(arrival, second);
    if (refusal === null && (await journal.recordSecondApproval(second.id, describeCommandSender(arrival)))) {
      if (command !== null) options.onSecondApproval(command.source);
      return;
    }
    const commandEndedRefusal: Refusal = {
      reason: "wrong-second",
      message: `Command ${second.id} has ended meanwhile.`,
    };
    await reportResults(toResult(arrival, `${second.id}/second`, command, refusal ?? commandEndedRefusal));
  }

  async function stopWriting(arrival: CommandMessage, id: string): Promise<void> {
    await killSwitch.turnOn(describeCommandSender(arrival), isoUtc(clock.now()));
    const message = `Writing is stopped; ${killSwitch.remedy} to go on.`;
    await reportResults(toResult(arrival, id, null, { outcome: "confirmed", reason: "stop", message }));
  }

  return async (arrival) => {
    if (arrival.payload.byteLength > config().max_payload_bytes) {
      const message = `The message is larger than ${config().max_payload_bytes} bytes.`;
      return reportResults(toResult(arrival, substituteCommandId(arrival), null, { reason: "too-large", message }));
    }
    const parsed = parseCommandPayload(arrival, journal.findKnownId);
    if ("stop" in parsed) return stopWriting(arrival, parsed.stop.id);
    if ("refused" in parsed)
      return reportResults(toResult(arrival, parsed.refused.id ?? substituteCommandId(arrival), null, parsed.refused));
    if ("second" in parsed) return acceptSecondApproval(arrival, parsed.second);
    const { messageId, requests } = parsed;
    const { acceptedCommands, refusedRequests } = await checkRequests(arrival, requests);
    if (requests.length > TAGS_PER_REQUEST) {
      const messageRefusal = findMessageRefusal(acceptedCommands, refusedRequests);
      if (messageRefusal !== null)
        return reportResults(toResult(arrival, messageId, messageRefusal.request, messageRefusal.refused));
    }
    const newCommands = new Set(await journal.accept(acceptedCommands));
    for (const acceptedCommand of newCommands) options.dispatch(acceptedCommand);
    const repeatedIds = acceptedCommands.filter((each) => !newCommands.has(each)).map(({ command }) => command.id);
    for (const request of requests)
      if (repeatedIds.includes(request.id)) refusedRequests.push({ request, refused: DUPLICATE_COMMAND_ID_REFUSAL });
    await reportResults(
      ...refusedRequests.map(({ request, refused }) => toResult(arrival, request.id, request, refused)),
    );
  };
}

/** Describes the sender of a command. The broker does not verify the name that the sender states. */
function describeCommandSender(arrival: CommandMessage): string {
  const senderPath = `${arrival.via} ${arrival.topic}`.slice(0, 300);
  const userName = parseUserName(arrival);
  return userName === null ? senderPath : `${senderPath}, says ${userName}`;
}

function parseUserName({ properties }: CommandMessage): string | null {
  return (
    properties.user
      ?.replace(/\p{Cc}/gu, " ")
      .slice(0, 64)
      .toWellFormed() || null
  );
}

function substituteCommandId(arrival: CommandMessage): string {
  return arrival.correlation?.slice(0, 128) ?? `unnamed-${arrival.receivedAtMs}`;
}
