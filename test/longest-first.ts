import { BaseSequencer, type TestSpecification } from "vitest/node";

/** Takes minutes each; the last file to begin keeps all workers waiting. */
const LONGEST = [
  "world/world",
  "losses/losses",
  "clock/campaign",
  "takeovers/takeovers",
  "recorded-run/recorded-run",
  "cli/export",
  "commands/mosquitto",
  "sync/history",
  "store/power-cut",
  "cli/past",
  "cli/fleet",
  "parquet/kill/kill",
  "receivers/random-crashes",
  "status/views",
];

export class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    const rank = ({ moduleId }: TestSpecification) => {
      const found = LONGEST.findIndex((name) => moduleId.endsWith(`/${name}.test.ts`));
      return found < 0 ? LONGEST.length : found;
    };
    return sorted.toSorted((a, b) => rank(a) - rank(b));
  }
}
