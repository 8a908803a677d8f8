import { draft, frameFor } from "#src/cli/running/setup.ts";
import { createPageSetup, type SetupSteps } from "#src/ui/setup/page-setup.ts";
import type { SeenBuilding } from "#src/ui/setup/seen.ts";
import { createVirtualClock } from "../virtual-clock.ts";
import { seenWith } from "./buildings.ts";

const NOW = Date.parse("2026-11-02T12:00:00Z");
export const ADDRESS = {
  address: "https://bms.example.com/api/v1",
  token: " secret ",
  allowPlainHttp: false,
};
const FRAME = frameFor("plenum.yaml", 9850, {
  ...{ name: "campus", baseUrl: "https://bms.example.com", allowPlainHttp: false, caFile: null },
  ...{ tokenFile: "token", timeZone: "Europe/Oslo", mqttUrl: null },
});

/** What the steps were given, and what they answer. */
export function world() {
  const given: unknown[] = [];
  const answers = {
    seen: seenWith({ "°C": 30, kWh: 5 }) as SeenBuilding,
    fault: null as Error | null,
  };
  const steps: SetupSteps = {
    async look(reach) {
      given.push(reach);
      if (answers.fault !== null) throw answers.fault;
      return answers.seen;
    },
    plan: (seen, wishes) => draft(FRAME, wishes, seen).plan,
    write(_, asked) {
      given.push(asked);
      if (answers.fault !== null) throw answers.fault;
      return { file: "plenum.yaml", tokenFile: "token", next: [["plenum run", "runs it"]] };
    },
  };
  const clock = createVirtualClock(NOW);
  return { given, answers, clock, setup: createPageSetup({ steps, clock, machineZone: "Europe/Oslo" }) };
}

export const WISHES = {
  every: { readings: 60_000, meters: null, rest: null },
  history: null,
  polite: 1,
};
