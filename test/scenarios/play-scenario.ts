import type { AlarmFact, Event } from "#src/core/model/event.ts";
import { createMemoryStore } from "../sync/memory-store.ts";
import { ALARMS_ONLY, createHarness, type SyncHarness } from "../sync/sync-harness.ts";
import type { Step, World } from "./scenario-files.ts";

const TOKEN = "simulator-token";

/** Returns the events that each step emitted, next to the expected ones. */
export async function playScenario(world: World, steps: readonly Step[]) {
  const ids = new Map<string, string>();
  const openTrial = () =>
    createHarness({
      simulator: { alarms: { recorded: false }, ...world.simulator },
      sync: { ...ALARMS_ONLY, ...world.sync, schedules: { ...ALARMS_ONLY.schedules, ...world.sync.schedules } },
      pageSize: world.page_size,
      store: createMemoryStore(),
    });
  const trialSync = openTrial();
  const { control } = trialSync.simulator;
  const raise = ({ name, site, tag }: { name: string; site: number; tag?: string | undefined }) =>
    ids.set(name, control.raiseAlarm({ siteId: site, tagId: tag, description: name }));
  const alarmId = (name: string) => {
    const id = ids.get(name);
    if (id === undefined) throw new Error(`No step before this raises ${name}.`);
    return id;
  };
  for (const alarm of world.active) raise(alarm);

  const emittedByStep: string[][] = [];
  let position = 0;
  try {
    for (const step of steps) {
      if (step.start !== undefined) await trialSync.start();
      if (step.stop !== undefined) await trialSync.stop();
      if (step.restart !== undefined) await trialSync.restart();
      if (step["lose-state"] !== undefined) await trialSync.loseState();
      if (step.raise !== undefined) raise(step.raise);
      if (step.resolve !== undefined) control.resolveAlarm(alarmId(step.resolve));
      if (step.retrigger !== undefined) control.retriggerAlarm(alarmId(step.retrigger));
      if (step.delete !== undefined) control.deleteAlarm(alarmId(step.delete));
      if (step.acknowledge !== undefined) control.acknowledgeAlarm(alarmId(step.acknowledge.name), step.acknowledge.by);
      if (step.unacknowledge !== undefined) control.unacknowledgeAlarm(alarmId(step.unacknowledge));
      if (step.recover !== undefined)
        control.recoverAlarm(alarmId(step.recover.name), trialSync.clock.now() + step.recover.for);
      if (step.gateway !== undefined) control.setGateway(step.gateway.id, step.gateway.online);
      if (step.token !== undefined) control.changeToken(TOKEN, definedTokenFields(step.token));
      if (step.change !== undefined) control.changeInventory(step.change.kind, step.change.id, step.change);
      if (step.faults !== undefined) control.setFaults(step.faults);
      if (step["between-pages"] !== undefined) moveBetweenPages(trialSync, step["between-pages"], alarmId, raise);
      if (step.wait !== undefined) await trialSync.clock.advance(step.wait);
      const newEvents = trialSync.store.events
        .slice(position)
        .filter(({ type }) => !type.endsWith("-added") && type !== "site-status-changed");
      emittedByStep.push(newEvents.map(describeEvent));
      position = trialSync.store.events.length;
    }
  } finally {
    await trialSync.stop();
  }
  return { told: emittedByStep, expected: steps.map((step) => step.tells ?? []) };
}

function definedTokenFields(token: NonNullable<Step["token"]>) {
  return {
    ...(token.sites === undefined ? {} : { sites: token.sites }),
    ...(token.visible_tags === undefined ? {} : { visible_tags: token.visible_tags }),
  };
}

function moveBetweenPages(
  harness: SyncHarness,
  move: { resolve: string; raise: string },
  idOf: (name: string) => string,
  raise: (alarm: { name: string; site: number }) => void,
): void {
  let hasMoved = false;
  harness.onRequest((path, query) => {
    if (hasMoved || !path.endsWith("/alarms") || query.get("status") !== "active" || query.has("page")) return;
    hasMoved = true;
    harness.simulator.control.resolveAlarm(idOf(move.resolve));
    raise({ name: move.raise, site: 3 });
  });
}

function describeEvent(event: Event): string {
  const { alarm, late, behindGateway, initial } = event.data as Partial<AlarmFact & { initial: boolean }>;
  const eventMarks = [
    late === true ? "late" : "",
    initial === true ? "initial" : "",
    typeof behindGateway === "string" ? `behind ${behindGateway}` : "",
  ].filter((mark) => mark !== "");
  const alarmName = alarm === undefined ? event.subject : alarm.description;
  return [event.type, alarmName, ...(eventMarks.length === 0 ? [] : [`(${eventMarks.join(", ")})`])].join(" ");
}
