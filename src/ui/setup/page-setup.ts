import { z } from "zod";
import { ConfigError } from "../../core/errors/errors.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import type { PlanReport } from "../../engine/sync/plan/report.ts";
import { readAddress } from "./address.ts";
import { Choices, groupsOf, proposedChoices, STEPS_MS } from "./choices.ts";
import type { Message } from "./messages.ts";
import { promises, shareSaid } from "./plan.ts";
import { tagsSaid } from "./plenum-yaml.ts";
import type { SeenBuilding } from "./seen.ts";
import { doubts, tokenSaid } from "./seen-lines.ts";
import { guessZone } from "./time-zone.ts";

/** The setup that a page walks through, from the address to the file; one at a time. */
export interface PageSetup {
  /** Looks at the building; what was seen before is forgotten. */
  look(asked: LookAsked, signal: AbortSignal): Promise<Looked>;
  plan(wishes: Choices): PlanShown;
  write(asked: WriteAsked): Written;
  /** Results so far, for a page that is opened again; null before the first look. */
  readonly looked: Looked | null;
  readonly written: Written | null;
}

export const LookAsked = z.strictObject({
  address: z.string().max(2_000),
  token: z.string().max(10_000),
  allowPlainHttp: z.boolean(),
});
export type LookAsked = z.infer<typeof LookAsked>;

export const WriteAsked = z.strictObject({
  wishes: Choices,
  timeZone: z.string().max(100),
  mqttUrl: z.string().max(2_000),
});
export type WriteAsked = z.infer<typeof WriteAsked>;

/** Building as the page shows it. */
export interface Looked {
  readonly baseUrl: string;
  readonly notes: readonly Message[];
  readonly token: Message;
  readonly tags: Message;
  /** Units of all sites, the most frequent first. */
  readonly units: SeenBuilding["units"];
  readonly sites: SeenBuilding["sites"];
  readonly systems: SeenBuilding["systems"];
  readonly alarms: number | null;
  readonly doubts: readonly Message[];
  readonly zone: { readonly proposed: string | null; readonly note: Message | null };
  /** The steps of the sliders, milliseconds. */
  readonly steps: readonly number[];
  readonly groups: readonly {
    readonly group: string;
    readonly tags: number;
    readonly units: readonly string[];
  }[];
  readonly wishes: Choices;
  readonly plan: PlanShown;
}

export interface PlanShown {
  readonly share: Message;
  readonly load: number;
  readonly fits: boolean;
  readonly lines: readonly Message[];
  /** The cheapest change that makes it fit; null when it fits. */
  readonly change: string | null;
}

export interface Written {
  readonly file: string;
  readonly tokenFile: string;
  /** Next steps, each a command and what it does. */
  readonly next: readonly (readonly [command: string, what: string])[];
}

/** Actions of the setup outside the page. */
export interface SetupSteps {
  look(
    reach: { readonly baseUrl: string; readonly allowPlainHttp: boolean; readonly token: string },
    signal: AbortSignal,
  ): Promise<SeenBuilding>;
  plan(seen: SeenBuilding, wishes: Choices): PlanReport;
  write(
    seen: SeenBuilding,
    asked: WriteAsked & {
      readonly baseUrl: string;
      readonly allowPlainHttp: boolean;
      readonly token: string;
    },
  ): Written;
}

export function createPageSetup(options: {
  readonly steps: SetupSteps;
  readonly clock: Pick<Clock, "now">;
  readonly machineZone: string;
}): PageSetup {
  const { steps, clock, machineZone } = options;
  let known: {
    readonly seen: SeenBuilding;
    readonly asked: LookAsked & { readonly baseUrl: string };
  } | null = null;
  let looked: Looked | null = null;
  let written: Written | null = null;

  function seenNow() {
    if (known === null) throw new ConfigError("Nothing was looked at yet; begin with the address.");
    return known;
  }

  return {
    get looked() {
      return looked;
    },
    get written() {
      return written;
    },
    async look(asked, signal) {
      const { baseUrl, notes } = readAddress(asked.address, asked.allowPlainHttp);
      const token = asked.token.trim();
      if (token === "") throw new ConfigError("The access token is missing.");
      const seen = await steps.look({ ...asked, token, baseUrl }, signal);
      const planOf = (wishes: Choices) => steps.plan(seen, wishes);
      const wishes = proposedChoices(seen, { resolution: "1h", backfillDays: 7 }, planOf);
      known = { seen, asked: { ...asked, token, baseUrl } };
      looked = {
        ...{ baseUrl, notes, wishes },
        token: tokenSaid(seen, clock.now()),
        ...{ tags: tagsSaid(seen), units: seen.units },
        ...{ sites: seen.sites, systems: seen.systems, alarms: seen.alarms },
        doubts: doubts(seen),
        zone: guessZone(seen, machineZone),
        steps: STEPS_MS,
        groups: groupsOf(seen).map(({ group, tags, units }) => ({
          ...{ group, tags },
          units: units.map(({ unit }) => unit),
        })),
        plan: shownPlan(planOf(wishes)),
      };
      return looked;
    },
    plan: (wishes) => shownPlan(steps.plan(seenNow().seen, wishes)),
    write(asked) {
      if (written !== null) throw new ConfigError(`${written.file} is written already.`);
      const { seen, asked: before } = seenNow();
      const { baseUrl, allowPlainHttp, token } = before;
      written = steps.write(seen, { ...asked, baseUrl, allowPlainHttp, token });
      return written;
    },
  };
}

function shownPlan(plan: PlanReport): PlanShown {
  const { load, fits, changes } = plan;
  return {
    ...{ load, fits, lines: promises(plan), share: shareSaid(plan) },
    change: fits ? null : (changes[0]?.text ?? null),
  };
}
