import { isListening } from "../../app/config/around-writing.ts";
import type { Config } from "../../app/config/config.ts";
import type { Places } from "../../app/config/places.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import { armingRefusal, armRequestIn } from "../../engine/commands/arming.ts";
import { openAuditSize } from "../../engine/commands/audit/size.ts";
import { viewOf } from "../../engine/commands/building-view.ts";
import type { AllowedTag } from "../../engine/commands/config.ts";
import { checkGateway, checkHours } from "../../engine/commands/gate.ts";
import { createKillSwitch } from "../../engine/commands/kill-switch.ts";
import type { Store } from "../../engine/store/store.ts";
import { ARM, DATABASE_ID, isMachineArmed } from "../../scale/fleet/armed-machine.ts";
import { readBody } from "../../scale/fleet/document.ts";
import { readFleetKillSwitch } from "../../scale/fleet/kill-switch.ts";
import { findWorkerFor } from "../shell/find-worker.ts";
import { lookAtParts, lookAtStateIfAny } from "../shell/look-at-state.ts";
import { withStateDatabase } from "../shell/state-database.ts";
import { type CheckLine, trouble } from "./check-line.ts";
import { lock, senderLocks } from "./check-senders.ts";

/**
 * Every lock in front of a write that is closed, a line for each with what opens it; empty while all are open. Value,
 * step and rate are judged for each command, and approval, token and building have lines of their own.
 */
export async function checkWriting(
  config: Config,
  places: Places,
  signal: AbortSignal,
): Promise<readonly CheckLine[]> {
  const { commands, sinks } = config;
  const isMeant = commands.enabled || commands.allow.length > 0 || Object.values(sinks).some(isListening);
  if (!isMeant) return [{ what: "writing", result: "ok", detail: `${OFF}, and no command is executed` }];
  return [
    ...configurationLocks(config, places),
    ...senderLocks(config, places),
    ...hoursLocks(config),
    ...(await stateLocks(config, signal)),
  ];
}

const OFF = "Writing is off (commands.enabled: false)";

function configurationLocks({ commands, sources }: Config, places: Places): readonly CheckLine[] {
  const { allow, enabled, rehearsal } = commands;
  const at = (...path: readonly string[]) => places(path);
  const named = Object.keys(sources).filter((name) => allow.some((tag) => (tag.source ?? name) === name));
  return [
    ...(enabled
      ? []
      : [lock(`${OFF}, so every command is refused: set commands.enabled: true.`, at("commands"))]),
    ...(rehearsal
      ? [
          lock(
            "Commands are only rehearsed (commands.rehearsal: true), so nothing is written: take rehearsal out, then restart the worker.",
            at("commands", "rehearsal"),
          ),
        ]
      : []),
    ...(allow.length > 0
      ? []
      : [
          lock(
            "No tag may be written, because commands.allow is empty: add an entry for each tag.",
            at("commands"),
          ),
        ]),
    ...named
      .filter((name) => sources[name]?.schedules.tags === false)
      .map((name) =>
        lock(
          `The worker does not list the tags of ${name} (schedules.tags: false), so it refuses every command as unknown-tag: take schedules.tags: false out.`,
          at("sources", name, "schedules", "tags"),
        ),
      ),
  ];
}

/** Closed for a time, so there is nothing to change. */
function hoursLocks({ commands, sources }: Config): readonly CheckLine[] {
  return commands.allow.flatMap((entry): readonly CheckLine[] => {
    const { time_zone: timeZone } = sources[sourceOf(entry, sources)] ?? {};
    if (timeZone === undefined) return [];
    const refusing = checkHours({ entry, forMs: null, nowMs: systemClock.now(), timeZone });
    if (refusing === null) return [];
    return [
      { what: "writing", result: "ok", detail: `Tag ${entry.tag_id} is closed now: ${refusing.message}` },
    ];
  });
}

function sourceOf({ source }: AllowedTag, sources: Config["sources"]): string {
  return source ?? Object.keys(sources)[0] ?? "";
}

/** Locks that are in the state and not in the file. */
async function stateLocks(config: Config, signal: AbortSignal): Promise<readonly CheckLine[]> {
  try {
    const { state } = config;
    const running = await findWorkerFor({ config }, signal);
    return [
      ...(state.postgres === undefined ? await folderLocks(config) : await fleetLocks(config)),
      ...(running.kind === "none"
        ? [
            {
              ...lock(
                "No worker is running here, and only a running worker writes: start it with plenum run.",
              ),
              result: "ok" as const,
            },
          ]
        : []),
    ];
  } catch (error) {
    signal.throwIfAborted();
    return [trouble("writing", error)];
  }
}

const STOPPED = "Writing is stopped by the kill switch: when the reason is over, run `plenum writes resume`.";

async function folderLocks(config: Config): Promise<readonly CheckLine[]> {
  const { folder } = config.state;
  const stopped = createKillSwitch(folder).thrown() ? [lock(STOPPED)] : [];
  // A rehearsal writes nothing, so it needs no arming; and a request that is there is about to be taken.
  const needsArming = !config.commands.rehearsal && !armRequestIn(folder).isThere();
  const found = await lookAtStateIfAny({ config }, (store) =>
    storeLocks(config, store, needsArming ? `the state ${folder}` : null),
  );
  if (found !== null || !needsArming) return [...stopped, ...(found ?? [])];
  const isNew =
    "This machine has no state yet, and a new state writes nothing until it is armed: run plenum writes arm once, where the worker runs.";
  return [...stopped, { ...lock(isNew), result: "ok" }];
}

async function fleetLocks(config: Config): Promise<readonly CheckLine[]> {
  const { folder } = config.state;
  const { isStopped, isArmed, isArmedHere, name } = await withStateDatabase(config, async (database) => {
    const id = await readBody(database, DATABASE_ID);
    return {
      isStopped: createKillSwitch(folder).thrown() || (await readFleetKillSwitch(database)) !== null,
      isArmed: (await readBody(database, ARM)) !== null,
      isArmedHere: id !== null && isMachineArmed(folder, JSON.parse(id) as string),
      name: database.name,
    };
  });
  const place = isArmed || config.commands.rehearsal ? null : `the fleet ${name}`;
  const found = await lookAtParts(config, Object.keys(config.sources), async (parts) => {
    const all = await Promise.all(parts.map((store) => storeLocks(config, store, place)));
    return all
      .flat()
      .filter(({ detail }, n, lines) => lines.findIndex((each) => each.detail === detail) === n);
  });
  // A fleet that was never armed says so itself.
  const unarmedHere =
    isArmed && !isArmedHere && !config.commands.rehearsal
      ? [
          lock(
            `Writing was never armed on this machine for the fleet ${name}: run plenum writes arm here once.`,
          ),
        ]
      : [];
  return [...(isStopped ? [lock(STOPPED)] : []), ...unarmedHere, ...found];
}

/** Locks in one state: `place` names it for arming, null where it needs none. */
async function storeLocks(config: Config, store: Store, place: string | null): Promise<readonly CheckLine[]> {
  const { allow, audit_max_bytes: auditBytes } = config.commands;
  const unarmed = place === null ? null : await armingRefusal(store, place);
  const isFull = (await openAuditSize(store)).bytes() >= auditBytes;
  const view = viewOf(store);
  const offline = await Promise.all(
    allow.map(async (entry) => {
      const gateways = await view.gateways(sourceOf(entry, config.sources), entry.site_id);
      const refusing = checkGateway({ entry, gateways });
      return refusing === null
        ? []
        : [lock(`Tag ${entry.tag_id} is not written until its gateway is back. ${refusing.message}`)];
    }),
  );
  return [
    ...(unarmed === null ? [] : [lock(unarmed.message)]),
    ...(isFull
      ? [lock("The audit log is full, so nothing is written: raise commands.audit_max_bytes.")]
      : []),
    ...offline.flat(),
  ];
}
