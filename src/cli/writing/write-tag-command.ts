import { randomUUID } from "node:crypto";
import { userInfo } from "node:os";
import { type Command, InvalidArgumentError } from "commander";
import { Rejected, Retryable } from "../../core/errors/errors.ts";
import type { TagScalar } from "../../core/model/building.ts";
import type { Event } from "../../core/model/event.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import { sleepFor } from "../../core/runtime/waiting.ts";
import type { Store } from "../../engine/store/store.ts";
import { type ControlSocket, sendApproval, sendCommand } from "../../ui/operator/control-socket-client.ts";
import { type CliContext, parsePositiveDuration } from "../shell/command-context.ts";
import { controlSocketOfWorker } from "../shell/find-worker.ts";
import { readState } from "../shell/open-worker-state.ts";
import { refuseUnknownSources } from "../shell/refuse-unknown-ids.ts";

/** Defines `plenum write`; the worker handles the command like a command from MQTT. */
export function defineCommand(command: Command, context: CliContext): void {
  command
    .argument("<tag>", "tag id; it must be listed under commands.allow")
    .argument("<value>", "a number, true or false", parseTagValue)
    .option("--source <name>", "which source, when there are several")
    .option("--for <time>", "for this long only, e.g. 2h; then the old value is restored", parseDurationSeconds)
    .option("--within <time>", "give up after this time, e.g. 5m; as configured when left out", parseDurationSeconds)
    .option("--id <text>", "id of the command; the same id is never written twice")
    .addHelpText("after", "\nExamples:\n  plenum write 10169 75\n  plenum write 10170 true\n  plenum write -- 10169 -5")
    .action(async (tagId: string, value: TagScalar, options: WriteCommandOptions) => {
      const { allow } = context.config().commands;
      const { source = null, id = `cli-${randomUUID()}`, for: forSeconds = null, within: ttlSeconds = null } = options;
      const needsSecondPerson = allow.some((allowedTag) => allowedTag.tag_id === tagId && allowedTag.second_person);
      await sendAndAwaitResult(context, "Writing", options.source, async ({ socket, user, waitForResult, update }) => {
        const command = { id, source, tagId, value, forSeconds, ttlSeconds, user };
        const { waitMs } = await sendCommand(socket, command, context.signal);
        if (needsSecondPerson) update(`Waiting for a second person, over MQTT: {"second": "${id}", "value": ${value}}`);
        else if (waitMs > 1_000) update(`Waiting ${Math.ceil(waitMs / 1_000)} s for the quota, then writing`);
        return waitForResult(id, context.signal);
      });
    });
}

interface WriteCommandOptions {
  readonly source?: string;
  readonly id?: string;
  readonly for?: number;
  readonly within?: number;
}

export function addSecondApprovalCommand(writesCommand: Command, context: CliContext): void {
  writesCommand
    .command("second")
    .description("agree as the second person to a command that came over MQTT, and wait for its result")
    .argument("<id>", "id of the command, as `command-accepted` tells it")
    .argument("<value>", "the value that it asks for: a number, true or false", parseTagValue)
    .option("--source <name>", "which source, when there are several")
    .addHelpText("after", "\nExample:\n  plenum writes second set-7 75")
    .action(async (id: string, value: TagScalar, options: { readonly source?: string }) => {
      await sendAndAwaitResult(context, "Agreeing", options.source, async ({ socket, user, waitForResult }) => {
        const resultController = new AbortController();
        const signal = AbortSignal.any([context.signal, resultController.signal]);
        try {
          const possibleResults = [waitForResult(id, signal), waitForResult(`${id}/second`, signal)];
          const approvalPromise = sendApproval(socket, { id, source: options.source ?? null, value, user }, signal);
          const [, firstResult] = await Promise.all([approvalPromise, Promise.any(possibleResults)]);
          return firstResult;
        } finally {
          resultController.abort();
        }
      });
    });
}

interface WriteCommandContext {
  readonly socket: ControlSocket;
  readonly user: string;
  readonly waitForResult: Awaited<ReturnType<typeof watchCommandResults>>;
  readonly update: (progressText: string) => void;
}

async function sendAndAwaitResult(
  context: CliContext,
  progressText: string,
  source: string | undefined,
  sendRequest: (commandContext: WriteCommandContext) => Promise<Event<"command-result">>,
): Promise<void> {
  const terminal = context.terminal();
  const config = context.config();
  refuseUnknownSources(config, source === undefined ? [] : [source]);
  const controlSocket = await controlSocketOfWorker({ config, source }, context.signal);
  if (controlSocket === null)
    throw new Retryable("No worker is running on this state folder, and only a worker writes.", {
      hint: "Start it with `plenum run`.",
    });
  const { data } = await terminal.progress(progressText, (update) =>
    readState({ config, source }, async (store) => {
      const waitForResult = await watchCommandResults(store);
      return sendRequest({ socket: controlSocket, user: userInfo().username, waitForResult, update });
    }),
  );
  const { outcome, reason, message } = data;
  terminal.print(data, [`${outcome}${reason === null ? "" : ` (${reason})`}: ${message}`]);
  if (!["confirmed", "accepted-unverified"].includes(outcome)) throw new Rejected(`The command ended as ${outcome}.`);
}

const parseDurationSeconds = (text: string): number => parsePositiveDuration(text) / 1_000;

function parseTagValue(text: string): TagScalar {
  if (text === "true" || text === "false") return text === "true";
  const number = Number(text);
  if (text.trim() === "" || !Number.isFinite(number)) throw new InvalidArgumentError("Write a number, true or false.");
  return number;
}

const POLL_INTERVAL_MS = 250;
const RESULTS_PER_POLL = 200;
/** Maximum wait for a result: a command is valid for at most 300 s, and reading the tag back takes up to 60 s. */
const COMMAND_RESULT_TIMEOUT_MS = 6 * 60_000;

/** Returns a function that waits for the result of a command that is sent from now on. */
async function watchCommandResults({ outbox }: Store) {
  const startPosition = (await outbox.latest(1))[0]?.position ?? 0;
  return async (commandId: string, signal: AbortSignal): Promise<Event<"command-result">> => {
    const deadlineMs = systemClock.monotonic() + COMMAND_RESULT_TIMEOUT_MS;
    do {
      const commandResult = (await outbox.latest(RESULTS_PER_POLL, ["command-result"]))
        .filter(({ position }) => position > startPosition)
        .map(({ event }) => event as Event<"command-result">)
        .find(({ data }) => data.commandId === commandId);
      if (commandResult !== undefined) return commandResult;
    } while (systemClock.monotonic() < deadlineMs && (await sleepFor(systemClock, POLL_INTERVAL_MS, signal)));
    signal.throwIfAborted();
    throw new Retryable(`Command ${commandId} has no result yet.`, { hint: "Look for it on the status page." });
  };
}
