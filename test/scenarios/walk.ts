import type { AlarmFact, Event } from "#src/core/model/event.ts";
import { createMemoryStore } from "../sync/memory-store.ts";
import { ALARMS_ONLY, createTrial, type TrialSync } from "../sync/trial-sync.ts";
import type { Step, World } from "./story.ts";

export interface Walked {
  readonly told: readonly (readonly string[])[];
  readonly expected: readonly (readonly string[])[];
}

const TOKEN = "simulator-token";

export async function walk(world: World, steps: readonly Step[]): Promise<Walked> {
  const ids = new Map<string, string>();
  const open = () =>
    createTrial({
      simulator: { alarms: { recorded: false }, ...world.simulator },
      sync: { ...ALARMS_ONLY, ...world.sync, schedules: { ...ALARMS_ONLY.schedules, ...world.sync.schedules } },
      pageSize: world.page_size,
      store: createMemoryStore(),
    });
  const trial = open();
  const { control } = trial.simulator;
  const raise = ({ name, site, tag }: { name: string; site: number; tag?: string | undefined }) =>
    ids.set(name, control.raiseAlarm({ siteId: site, tagId: tag, description: name }));
  const idOf = (name: string) => {
    const id = ids.get(name);
    if (id === undefined) throw new Error(`No step before this raises ${name}.`);
    return id;
  };
  for (const alarm of world.active) raise(alarm);

  const told: string[][] = [];
  let position = 0;
  try {
    for (const step of steps) {
      if (step.start !== undefined) await trial.start();
      if (step.stop !== undefined) await trial.stop();
      if (step.restart !== undefined) await trial.restart();
      if (step["lose-state"] !== undefined) await trial.loseState();
      if (step.raise !== undefined) raise(step.raise);
      if (step.resolve !== undefined) control.resolveAlarm(idOf(step.resolve));
      if (step.retrigger !== undefined) control.retriggerAlarm(idOf(step.retrigger));
      if (step.delete !== undefined) control.deleteAlarm(idOf(step.delete));
      if (step.acknowledge !== undefined) control.acknowledgeAlarm(idOf(step.acknowledge.name), step.acknowledge.by);
      if (step.unacknowledge !== undefined) control.unacknowledgeAlarm(idOf(step.unacknowledge));
      if (step.recover !== undefined)
        control.recoverAlarm(idOf(step.recover.name), trial.clock.now() + step.recover.for);
      if (step.gateway !== undefined) control.setGateway(step.gateway.id, step.gateway.online);
      if (step.token !== undefined) control.changeToken(TOKEN, definedOf(step.token));
      if (step.change !== undefined) control.changeInventory(step.change.kind, step.change.id, step.change);
      if (step.faults !== undefined) control.setFaults(step.faults);
      if (step["between-pages"] !== undefined) moveBetweenPages(trial, step["between-pages"], idOf, raise);
      if (step.wait !== undefined) await trial.clock.advance(step.wait);
      const news = trial.store.events.slice(position).filter((event) => !event.type.endsWith("-added"));
      told.push(news.map(spelled));
      position = trial.store.events.length;
    }
  } finally {
    await trial.stop();
  }
  return { told, expected: steps.map((step) => step.tells ?? []) };
}

function definedOf(token: NonNullable<Step["token"]>) {
  return {
    ...(token.sites === undefined ? {} : { sites: token.sites }),
    ...(token.visible_tags === undefined ? {} : { visible_tags: token.visible_tags }),
  };
}

function moveBetweenPages(
  trial: TrialSync,
  move: { resolve: string; raise: string },
  idOf: (name: string) => string,
  raise: (alarm: { name: string; site: number }) => void,
): void {
  let moved = false;
  trial.onRequest((path, query) => {
    if (moved || !path.endsWith("/alarms") || query.get("status") !== "active" || query.has("page")) return;
    moved = true;
    trial.simulator.control.resolveAlarm(idOf(move.resolve));
    raise({ name: move.raise, site: 3 });
  });
}

function spelled(event: Event): string {
  const { alarm, late, behindGateway, initial } = event.data as Partial<AlarmFact & { initial: boolean }>;
  const marks = [
    late === true ? "late" : "",
    initial === true ? "initial" : "",
    typeof behindGateway === "string" ? `behind ${behindGateway}` : "",
  ].filter((mark) => mark !== "");
  const name = alarm === undefined ? event.subject : alarm.description;
  return [event.type, name, ...(marks.length === 0 ? [] : [`(${marks.join(", ")})`])].join(" ");
}
