import { type Command, InvalidArgumentError } from "commander";
import type { Config } from "../../app/config/config.ts";
import { toPageConfig } from "../../app/status-page-settings.ts";
import { ConfigError } from "../../core/errors/errors.ts";
import { refuseUnverifiedTls } from "../../core/http/verified-tls.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import { parseDuration } from "../../core/values/duration.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { buildSnapshotRequest } from "../../engine/delivery/send-state-snapshot.ts";
import type { Store } from "../../engine/store/store.ts";
import { backlogText } from "../../ui/status/sink-reports.ts";
import type { CliContext } from "../shell/command-context.ts";
import { useStateStore } from "../shell/open-worker-state.ts";
import { createStandaloneSink } from "../shell/source-and-sinks-without-worker.ts";

export function defineOutboxCommand(outbox: Command, context: CliContext): void {
  outbox
    .addHelpText(
      "after",
      "\nExamples:\n  plenum outbox\n  plenum outbox dead tickets\n  plenum outbox resend tickets 17 18\n  plenum outbox replay lake --since 2h\n  plenum outbox snapshot lake\n  plenum outbox revive tickets",
    )
    .action(() => useCommandStore(context, true, (store, config) => showSinkLags(context, store, config)));
  outbox
    .command("dead")
    .description("list dead letters: events that a sink refused for good, and why")
    .argument("[sink]", "only this sink's")
    .action((sink?: string) => useCommandStore(context, true, (store) => showDeadLetters(context, store, sink), sink));

  const addSinkCommand = <T extends unknown[]>(
    commandName: string,
    description: string,
    applyChange: (
      store: Store,
      sink: string,
      args: T,
      config: Config,
    ) => Promise<readonly [value: object, line: string]>,
  ) => {
    const runSinkChange = async (sink: string, args: T, store: Store, config: Config) => {
      const [value, line] = await applyChange(store, sink, args, config);
      context.terminal().print(value, [line]);
    };
    return outbox
      .command(commandName)
      .description(description)
      .argument("<sink>", "name of a sink")
      .action((sink: string, ...args: T) =>
        useCommandStore(context, false, (store, config) => runSinkChange(sink, args, store, config), sink),
      );
  };
  const DEAD_LETTER_IDS_ARGUMENT = ["[id...]", "numbers from `outbox dead`; all when left out"] as const;
  addSinkCommand<[string[]]>("resend", "offer dead letters to their sink once more", async (store, sink, [ids]) => {
    const count = await store.outbox.resendDeadLetters(sink, await parseDeadLetterIds(store, sink, ids));
    return [{ resent: count }, `${count} dead letters will be offered to ${sink} again.`];
  }).argument(...DEAD_LETTER_IDS_ARGUMENT);
  addSinkCommand<[string[]]>("discard", "throw dead letters away", async (store, sink, [ids]) => {
    const count = await store.outbox.discardDeadLetters(sink, await parseDeadLetterIds(store, sink, ids));
    return [{ discarded: count }, `${count} dead letters of ${sink} are gone.`];
  }).argument(...DEAD_LETTER_IDS_ARGUMENT);
  const REPLAY_HELP = "send delivered events once more, with the same ids, for a sink that lost them";
  addSinkCommand<[{ readonly since: string }]>("replay", REPLAY_HELP, async (store, sink, [{ since }]) => {
    const count = await store.outbox.replay(sink, since);
    return [{ replayed: count }, `${count} events will be sent to ${sink} again.`];
  }).requiredOption("--since <age>", "how far back, e.g. 2h; the replay window of the state bounds it", parseAgeToTime);
  const SNAPSHOT_HELP = "send what is believed now (inventory, active alarms, last values) to a sink, by its filter";
  addSinkCommand("snapshot", SNAPSHOT_HELP, async (store, sink) => {
    await store.commit({ documents: [buildSnapshotRequest(sink, isoUtc(systemClock.now()))] });
    return [{ sink }, `${sink} gets what is believed now, marked as a snapshot.`];
  });
  addSinkCommand("revive", "resume a sink that ended because its server wants no more events (410 Gone)", resumeSink);
}

async function resumeSink(
  { outbox }: Store,
  sink: string,
  _: unknown,
  config: Config,
): Promise<readonly [value: object, line: string]> {
  if (config.sinks[sink]?.enabled !== true)
    throw new ConfigError(`The sink ${sink} is not in the configuration, or not enabled.`, {
      hint: "Put it there; it then goes on by itself.",
    });
  const readLag = async () => (await outbox.lag(toPageConfig(config).filterBySink)).find((lag) => lag.sink === sink);
  const hasSinkEnded = ((await readLag())?.ended ?? null) !== null;
  if (hasSinkEnded) await outbox.setEnded(sink, null);
  const currentSinkLag = await readLag();
  const eventCountText = currentSinkLag === undefined ? "no" : backlogText(currentSinkLag);
  return [
    { revived: hasSinkEnded, waiting: currentSinkLag?.depth ?? 0 },
    hasSinkEnded
      ? `${sink} goes on, with ${eventCountText} events that it has not got.`
      : `${sink} has not ended; ${eventCountText} events wait for it.`,
  ];
}

async function showSinkLags(context: CliContext, store: Store, config: Config): Promise<void> {
  const ageSeconds = (since: string) => Math.round((systemClock.now() - Date.parse(since)) / 1000);
  context.terminal().printRows(await store.outbox.lag(toPageConfig(config).filterBySink), {
    sink: "sink",
    lag: backlogText,
    oldest: ({ oldest }) => (oldest === null ? null : `${ageSeconds(oldest)} s`),
    "dead letters": "deadLetters",
    dropped: "dropped",
    ended: "ended",
  });
}

async function showDeadLetters(context: CliContext, store: Store, sink: string | undefined): Promise<void> {
  context.terminal().printRows(await store.outbox.deadLetters(sink), {
    id: "id",
    sink: "sink",
    at: "at",
    event: ({ event }) => event?.type ?? "damaged",
    subject: ({ event }) => event?.subject ?? null,
    sequence: ({ sequence }) => sequence?.number ?? null,
    reason: "reason",
  });
}

export async function useCommandStore(
  context: CliContext,
  readOnly: boolean,
  useStore: (store: Store, config: Config) => Promise<void>,
  sink?: string,
): Promise<void> {
  const config = await context.acceptedConfig();
  await useStateStore({ config }, readOnly, async (store) => {
    const sinkLags = sink === undefined ? [] : await store.outbox.lag();
    const knownSinks = new Set([...Object.keys(config.sinks), ...sinkLags.map((lag) => lag.sink)]);
    if (sink !== undefined && !knownSinks.has(sink))
      throw new ConfigError(`There is no sink ${sink}; known are: ${[...knownSinks].join(", ")}.`);
    await useStore(store, config);
  });
}

/** Throws ConfigError for an unknown id, before any dead letter is changed. */
async function parseDeadLetterIds(
  { outbox }: Store,
  sink: string,
  idTexts: readonly string[],
): Promise<readonly number[] | "all"> {
  if (idTexts.length === 0) return "all";
  if (!idTexts.every((id) => /^\d+$/.test(id)))
    throw new InvalidArgumentError("Ids are the numbers that `plenum outbox dead` shows.");
  const deadLetterIds = idTexts.map(Number);
  const knownDeadLetterIds = new Set((await outbox.deadLetters(sink, Number.MAX_SAFE_INTEGER)).map(({ id }) => id));
  const unknownIds = deadLetterIds.filter((id) => !knownDeadLetterIds.has(id));
  if (unknownIds.length === 0) return deadLetterIds;
  throw new ConfigError(
    `The sink ${sink} has no dead letter${unknownIds.length === 1 ? "" : "s"} ${unknownIds.join(", ")}.`,
    { hint: "`plenum outbox dead` lists them; one that is sent again is listed only if it is refused again." },
  );
}

function parseAgeToTime(text: string): string {
  const ageMs = parseDuration(text);
  if (ageMs === null) throw new InvalidArgumentError("Write an age such as 90s, 30m or 2h.");
  return new Date(systemClock.now() - ageMs).toISOString();
}

const SINK_TEST_TIMEOUT_MS = 60_000;

export function defineSinkCommand(sink: Command, context: CliContext): void {
  sink.addHelpText("after", "\nExample:\n  plenum sink test chat");

  sink
    .command("test")
    .description("open, change and close a marked test alarm where the sink's people look")
    .argument("<sink>", "name of a sink that makes tickets, messages or pages of alarms")
    .addHelpText("after", "\nExample:\n  plenum sink test chat")
    .action((name: string) => testSink(context, name));
}

async function testSink(context: CliContext, name: string): Promise<void> {
  refuseUnverifiedTls();
  const { sinks } = context.config();
  const sinkConfig = sinks[name];
  if (sinkConfig === undefined)
    throw new ConfigError(`There is no sink ${name}; known are: ${Object.keys(sinks).join(", ") || "none"}.`);
  const sink = await createStandaloneSink(name, sinkConfig);
  try {
    if (sink?.test === undefined)
      throw new ConfigError(`${name} takes events as they are, so there is nothing to open and close.`, {
        hint: "`plenum check` shows whether it can be reached.",
      });
    const steps: string[] = [];
    const addStep = (line: string) => {
      steps.push(line);
      context.terminal().info(line);
    };
    await sink.test(addStep, AbortSignal.any([context.signal, AbortSignal.timeout(SINK_TEST_TIMEOUT_MS)]));
    context.terminal().print({ sink: name, steps }, [`${name}: the test alarm was opened, changed and closed.`]);
  } finally {
    await sink?.close();
  }
}
