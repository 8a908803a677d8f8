import { describe, expect, test } from "vitest";
import { Config } from "#src/app/config/config.ts";
import { parseYaml } from "#src/app/config/load.ts";
import { draft, frameFor } from "#src/cli/running/setup.ts";
import { type Choices, proposedChoices } from "#src/ui/setup/choices.ts";
import { shareText } from "#src/ui/setup/plan.ts";
import type { SeenBuilding } from "#src/ui/setup/seen.ts";
import { ABILITIES, seenWith } from "./buildings.ts";

const FRAME = frameFor("plenum.yaml", 9850, {
  name: "campus",
  baseUrl: "https://monitoring.example.com",
  allowPlainHttp: false,
  caFile: null,
  tokenFile: "secrets/token",
  timeZone: "Europe/Oslo",
  mqttUrl: null,
});
const HISTORY = { resolution: "1h", backfillDays: 7 } as const;

function made(seen: SeenBuilding, change: (wishes: Choices) => Choices = (wishes) => wishes) {
  const proposed = proposedChoices(seen, HISTORY, (tried) => draft(FRAME, tried, seen).plan);
  const wishes = change(proposed);
  const { text, plan } = draft(FRAME, wishes, seen);
  const config = parseYaml({ schema: Config, file: "plenum.yaml", text, environment: {} });
  const source = config.sources.campus;
  if (source === undefined) throw new Error("no source");
  return { wishes, text, plan, source, lines: text.trimEnd().split("\n") };
}

const USUAL = { "°C": 80, "%": 50, kWh: 40, "": 30 };

describe("the configuration that is proposed", () => {
  test("is about 25 lines long, accepted, and says what it takes", () => {
    const { lines, source, plan, text } = made(seenWith(USUAL));
    expect(lines.length).toBeGreaterThan(20);
    expect(lines.length).toBeLessThan(34);
    expect(source.read.map(({ name, every, select }) => [name, every, select.units])).toEqual([
      ["readings", 30_000, ["°C", "%"]],
      ["meters", 900_000, ["kWh"]],
      ["the rest", 120_000, undefined],
    ]);
    expect(source.history).toMatchObject([{ resolution: "1h", backfill: 7 * 86_400_000 }]);
    expect(plan.classes.map(({ name, tags }) => [name, tags])).toEqual([
      ["readings", 130],
      ["meters", 40],
      ["the rest", 30],
    ]);
    expect(shareText(plan)).toMatch(/^These wishes take \d\d % of the quota \(20 requests a minute\)\.$/);
    expect(text).toContain(`# ${shareText(plan)}`);
    expect(text).toContain("# 200 tags (°C 80, % 50, kWh 40, no unit 30).");
    expect(text).not.toContain("schedules");
  });

  test("says whose token it was made with, until when, and which sites that sees", () => {
    const headOf = (expiresAt: string | null, names: readonly string[]) => {
      const sites = names.map((displayName, n) => ({ id: n + 1, displayName }));
      return made(seenWith(USUAL, { expiresAt, sites })).lines.slice(1, 3);
    };
    expect(headOf(null, ["A"])).toEqual(['# Token "Plenum" of Kari Nordmann, never expires.', "# It sees A:"]);
    expect(headOf("2027-11-02T12:00:00Z", ["A", "B", "C"])).toEqual([
      '# Token "Plenum" of Kari Nordmann, expires 2027-11-02.',
      "# It sees A, B, C:",
    ]);
    expect(headOf(null, ["A", "B", "C", "D", "E"])[1]).toBe("# It sees A, B, C and 2 more sites:");
  });

  test("fetches the history of many tags seldom, and says so only there", () => {
    const everyOf = (tags: number) => /every: (\w+)\s+backfill/.exec(made(seenWith({ "°C": tags })).text)?.[1];
    expect([everyOf(10), everyOf(1_500), everyOf(4_500)]).toEqual([undefined, "6h", "1d"]);
    const none = made(seenWith(USUAL), (wishes) => ({
      ...wishes,
      history: { resolution: "1d", backfillDays: 0 },
      polite: 0.5,
    }));
    expect([none.source.history[0]?.backfill, none.source.quota.polite]).toEqual([0, 0.5]);
    expect(none.text).not.toContain("backfill:");
    expect(made(seenWith(USUAL)).text).not.toContain("polite");
  });

  test.each([10, 300, 3_000, 30_000])("leaves a fifth of the quota with %i tags", (tags) => {
    const { plan, wishes } = made(seenWith({ "°C": tags * 0.6, kWh: tags * 0.2, "": tags * 0.2 }));
    expect(plan.load).toBeLessThanOrEqual(0.8);
    expect(plan.fits).toBe(true);
    expect(plan.tags).toBe(tags);
    expect(wishes.every.readings).toBeGreaterThanOrEqual(30_000);
  });

  test("without a tag reads none, and follows alarms", () => {
    const { source, plan, text } = made(seenWith({}));
    expect([source.read, source.history, plan.load]).toEqual([[], [], 0]);
    expect(text).toContain("0 tags");
  });

  test("one kind of tags is one class that selects everything", () => {
    expect(made(seenWith({ "": 5 })).source.read).toMatchObject([{ name: "everything", select: {}, every: 30_000 }]);
  });

  test("switches off what the token may not ask for", () => {
    const { source, text } = made(seenWith({}, { abilities: ["read:alarms"] }));
    expect(text).toContain("# The token may not read tags, gateways, hosts, systems.");
    expect(source.schedules).toMatchObject({ tags: false, gateways: false, hosts: false, systems: false });
    expect(source.schedules.alarms).not.toBe(false);
    const valuesOnly = made(seenWith(USUAL, { abilities: ["read:tags", "write:tags"] }));
    expect(valuesOnly.source.schedules).toMatchObject({ alarms: false, resolved_sweep: false });
    expect(valuesOnly.text).toContain("# The token may write tags.");
  });

  test("what is not wished is not read by another class either", () => {
    const every = { readings: 60_000, meters: null, rest: 300_000 };
    const { source, plan } = made(seenWith(USUAL), (wishes) => ({ ...wishes, every, history: null }));
    expect(source.read).toMatchObject([
      { name: "readings", select: { units: ["°C", "%"] } },
      { name: "the rest", select: { exclude: { units: ["kWh"] } } },
    ]);
    expect([plan.classes.map(({ tags }) => tags), plan.tagsNotRead, source.history]).toEqual([[130, 30], 40, []]);
  });

  test("names and units of the service stay texts, whatever is in them", () => {
    // biome-ignore lint/suspicious/noTemplateCurlyInString: what a configuration would replace.
    const hostile = 'x"\n  evil: ${HOME} # \u202e\u0007 - {}';
    const seen = seenWith(
      { [hostile]: 3, kWh: 2, "": 1 },
      {
        name: hostile,
        user: { id: 1, name: hostile, email: "" },
        sites: [{ id: 1, displayName: hostile }],
        abilities: ABILITIES,
      },
    );
    const { source, text } = made(seen);
    expect(source.read[0]?.select.units).toEqual([hostile]);
    for (const unseen of ["\u202e", "\u0007"]) expect(text).not.toContain(unseen);
    expect(text.split("\n").filter((line) => line.startsWith("  evil"))).toEqual([]);
  });

  test("a configuration in another folder names everything by whole paths", () => {
    const frame = frameFor("/etc/plenum/plenum.yaml", 9851, { ...FRAME, tokenFile: "/etc/plenum/token" });
    const { text } = draft(frame, made(seenWith(USUAL)).wishes, seenWith(USUAL));
    expect(text).toContain("status: { port: 9851 } # 9850 was taken\n");
    expect(text).toContain("folder: /etc/plenum/state\n");
    expect(text).toContain("files: { file: { folder: /etc/plenum/events } }\n");
  });

  test("wishes beyond the quota are said to be that", () => {
    const every = { readings: 10_000, meters: 10_000, rest: 10_000 };
    const { plan } = made(seenWith({ "°C": 3_000 }), (wishes) => ({ ...wishes, every }));
    expect(shareText(plan)).toMatch(/^These wishes need \d+ % of the quota .*older than wished\.$/);
  });
});
