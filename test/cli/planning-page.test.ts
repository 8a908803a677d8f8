import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { parse } from "yaml";
import { quotaPlanLines } from "#src/cli/watching/quota-plan-command.ts";
import { HistoryConfig } from "#src/engine/sync/history/config.ts";
import { reportPlan } from "#src/engine/sync/plan/report.ts";
import { ReadConfig } from "#src/engine/sync/read/config.ts";

const page = readFileSync(join(import.meta.dirname, "../../docs/planning.md"), "utf8");
const documentedTargets = parse(/<!-- configuration -->\s*```yaml\n([^`]*)```/.exec(page)?.[1] ?? "") as {
  readonly read: unknown;
  readonly history: unknown;
};
const read = ReadConfig.parse(documentedTargets.read);
const history = HistoryConfig.parse(documentedTargets.history);
const TAGS: Readonly<Record<string, number>> = { comfort: 200, meters: 1_200, rest: 1_600 };

function planText(more: { readonly comfortMs?: number } = {}): string {
  const everyTag = Object.values(TAGS).reduce((sum, each) => sum + each, 0);
  const planReport = reportPlan({
    source: "main",
    basis: "lists",
    nowMs: Date.parse("2026-11-21T09:00:00Z"),
    sites: 12,
    tags: everyTag,
    classes: read.map(({ name, every, firm, importance, fresher }) => ({
      name,
      tags: TAGS[name] ?? 0,
      allTagCount: TAGS[name] ?? 0,
      everyMs: name === "comfort" ? (more.comfortMs ?? every) : every,
      firm,
      importance,
      fresher,
      valueAgeMs: null,
    })),
    history: history.map(({ name, resolution, total, every }) => {
      return { name, resolution, total, everyMs: every, tags: everyTag, withoutLog: 0 };
    }),
    tagsWithoutKnownLog: everyTag,
    backfill: { requestsLeft: 54_900, requestsAtBest: 1_350, paused: false },
    quota: { perMinute: 20, reserve: 0, polite: 1, polls: 20, shared: true, size: 20 },
  });
  return quotaPlanLines(planReport).join("\n");
}

describe("docs/planning.md", () => {
  const [fits = "", tooMuch = ""] = [...page.matchAll(/<!-- plan: [^>]* -->\s*```\n([^`]*)```/g)].map(
    ([, text = ""]) => text,
  );

  test("shows the plan that plenum plan prints for the read intervals in the document", () => {
    expect(planText()).toBe(fits);
  });

  test("shows the message that plenum plan prints for read intervals that exceed the quota", () => {
    expect(tooMuch.length).toBeGreaterThan(100);
    expect(planText({ comfortMs: 10_000 })).toContain(tooMuch);
  });
});
