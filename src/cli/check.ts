import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Command } from "commander";
import { buildSource } from "../build-source.ts";
import { systemClock } from "../clock.ts";
import { approvalState } from "../commands/approval/approving.ts";
import { type Config, connectorOf, type SourceEntry } from "../config/config.ts";
import type { Sink } from "../connector.ts";
import { matches } from "../delivery/filter.ts";
import { formatDuration } from "../duration.ts";
import { ConfigError, meaningOf, Retryable, sentence } from "../errors.ts";
import { type Event, sourceUri } from "../event.ts";
import { createLog, withoutCredentials } from "../log.ts";
import { createMetrics } from "../metrics.ts";
import { readCredentials } from "../status/credentials.ts";
import { openStore } from "../store/open.ts";
import { refuseUnverifiedTls } from "../verified-tls.ts";
import { questionOf } from "./approval.ts";
import type { CliContext } from "./context.ts";
import { loneSink } from "./lone-sink.ts";

interface CheckLine {
  readonly what: string;
  readonly result: "ok" | "warning" | "unavailable" | "wrong";
  readonly detail: string;
}

const PROBE_WITHIN_MS = 20_000;

/**
 * Looks at everything that a run would need and changes nothing: no tag request, no event, no file in the state. The
 * one thing that leaves is a message that an MQTT broker passes on to nobody who does not ask for it.
 */
export function define(command: Command, context: CliContext): void {
  command
    .addHelpText("after", "\nExample:\n  plenum check --config /etc/plenum/plenum.yaml")
    .action(async () => {
      refuseUnverifiedTls();
      const terminal = context.terminal();
      const config = context.config();
      const findings: CheckLine[] = [
        { what: "configuration", result: "ok", detail: context.configFile() },
        ...checkStatus(config),
        ...checkApproved(config),
      ];
      await terminal.progress("Checking", async (update) => {
        for (const [name, entry] of Object.entries(config.sources)) {
          update(`Asking source ${name}`);
          findings.push(...(await checkSource(name, entry, config, context.signal)));
        }
        for (const name of Object.keys(config.sinks)) {
          update(`Asking sink ${name}`);
          findings.push(...(await checkSink(name, config, context.signal)));
        }
      });
      terminal.rows<CheckLine>(findings, [
        { title: "what", value: (finding) => finding.what },
        { title: "result", value: (finding) => finding.result },
        { title: "detail", value: (finding) => finding.detail },
      ]);
      const bad = findings.filter(({ result }) => result === "wrong" || result === "unavailable");
      if (bad.length === 0) return;
      const text = `${bad.length} of ${findings.length} checks did not pass.`;
      throw bad.some(({ result }) => result === "wrong") ? new ConfigError(text) : new Retryable(text);
    });
}

function checkStatus({ status }: Config): readonly CheckLine[] {
  try {
    if (readCredentials(status) === null) return [];
    return [{ what: "status", result: "ok", detail: "the passwords are there" }];
  } catch (error) {
    return [trouble("status", error)];
  }
}

/** Nothing is written before a second person has agreed, so whoever checks should learn it here. */
function checkApproved(config: Config): readonly CheckLine[] {
  if (!config.commands.enabled) return [];
  const what = "approval of writing";
  try {
    const question = questionOf(config);
    if (question.config === null && question.pinned === null) return [];
    const { approvedBy, refusing } = approvalState(question);
    return refusing === null
      ? [{ what, result: "ok", detail: `approved by ${approvedBy.join(", ")}` }]
      : [{ what, result: "wrong", detail: refusing }];
  } catch (error) {
    return [trouble(what, error)];
  }
}

/** Asks with a time limit; running into it is told as such. */
async function within<T>(signal: AbortSignal, ask: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const limit = AbortSignal.timeout(PROBE_WITHIN_MS);
  try {
    return await ask(AbortSignal.any([signal, limit]));
  } catch (error) {
    signal.throwIfAborted();
    if (!limit.aborted) throw error;
    throw new Retryable(`There was no answer within ${PROBE_WITHIN_MS / 1_000} s.`, { cause: error });
  }
}

async function checkSource(
  name: string,
  entry: SourceEntry,
  config: Config,
  signal: AbortSignal,
): Promise<readonly CheckLine[]> {
  const what = `source ${name}`;
  // A state of its own, thrown away: the real one may belong to a running worker. No tag request is sent.
  const folder = mkdtempSync(join(tmpdir(), "plenum-check-"));
  const store = await openStore({ folder, clock: systemClock });
  const log = createLog({ level: "silent" });
  const { source } = buildSource({ name, entry, store, clock: systemClock, log, metrics: createMetrics() });
  try {
    const me = await within(signal, (limited) => source.me(limited));
    const lacking = neededAbilities(entry, config, name).filter((ability) => !me.abilities.includes(ability));
    const writing = config.commands.enabled;
    return [
      {
        what,
        result: "ok",
        detail: `token "${me.name}" of ${me.user.name}, expires ${me.expiresAt ?? "never"}`,
      },
      {
        what,
        result: me.sites.length === 0 ? "wrong" : "ok",
        detail: `the token sees ${me.sites.length} sites`,
      },
      ...lacking.map(
        (ability): CheckLine => ({ what, result: "wrong", detail: `the token lacks ${ability}` }),
      ),
      ...(!writing && me.abilities.includes("write:tags")
        ? [
            {
              what,
              result: "warning",
              detail: "the token may write tags, and writing is off: a smaller one is safer",
            } as const,
          ]
        : []),
    ];
  } catch (error) {
    signal.throwIfAborted();
    return [trouble(what, error)];
  } finally {
    await source.close();
    await store.close();
    rmSync(folder, { recursive: true, force: true });
  }
}

function neededAbilities(entry: SourceEntry, config: Config, source: string): readonly string[] {
  const { schedules } = entry;
  const writes =
    config.commands.enabled && config.commands.allow.some((tag) => (tag.source ?? source) === source);
  const needs: readonly (readonly [boolean, string])[] = [
    [schedules.alarms !== false || schedules.resolved_sweep !== false, "read:alarms"],
    [schedules.tags !== false || entry.read.length > 0 || entry.history.length > 0, "read:tags"],
    [schedules.gateways !== false, "read:gateways"],
    [schedules.hosts !== false, "read:hosts"],
    [schedules.systems !== false, "read:systems"],
    [writes, "write:tags"],
  ];
  return needs.filter(([needed]) => needed).map(([, ability]) => ability);
}

async function checkSink(name: string, config: Config, signal: AbortSignal): Promise<readonly CheckLine[]> {
  const what = `sink ${name}`;
  const entry = config.sinks[name];
  if (entry === undefined || !entry.enabled)
    return [{ what, result: "warning", detail: "switched off (enabled: false)" }];
  const connector = connectorOf(entry);
  let sink: Sink | undefined;
  try {
    sink = await loneSink(name, entry);
    if (sink?.probe === undefined) return [{ what, result: "ok", detail: `${connector}: nothing to ask` }];
    const asked = sink;
    await within(signal, async (limited) => asked.probe?.(limited));
    const keepsMs = await within(signal, async (limited) => (await asked.keepsMs?.(limited)) ?? null);
    return [
      { what, result: "ok", detail: `${connector} answers` },
      ...(keepsMs === null ? [] : pastThatIsLost(what, entry, config, keepsMs)),
    ];
  } catch (error) {
    signal.throwIfAborted();
    return [trouble(what, error)];
  } finally {
    await sink?.close();
  }
}

/** The past that is asked for and that the sink gets, and that is older than what its far end keeps. */
function pastThatIsLost(
  what: string,
  { filter }: Config["sinks"][string],
  config: Config,
  keepsMs: number,
): readonly CheckLine[] {
  return Object.entries(config.sources).flatMap(([source, { history }]) =>
    history.flatMap(({ name, backfill, total }): CheckLine[] => {
      const type = total ? "tag-total" : "tag-history";
      const event = { type, source: sourceUri(source), siteid: filter.sites[0] } as Event;
      if (backfill <= keepsMs || !matches({ ...filter, priorities: [] }, event)) return [];
      const asked = `the history ${name} of ${source} asks for the past ${formatDuration(backfill)}`;
      const detail = `It keeps ${formatDuration(keepsMs)}, and ${asked}: what is older is fetched and lost there. Shorten backfill, or keep more there.`;
      return [{ what, result: "warning", detail }];
    }),
  );
}

function trouble(what: string, error: unknown): CheckLine {
  const result = meaningOf(error).kind === "config" ? "wrong" : "unavailable";
  return { what, result, detail: withoutCredentials(sentence(error)) };
}
