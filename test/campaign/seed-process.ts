import { DatabaseSync } from "node:sqlite";
import type { Campaign } from "./campaign.ts";
import type { Report, SeedJob } from "./seed-processes.ts";

/**
 * Opens each state with an exclusive lock, because SQLite otherwise locks the file for every statement, which is half of
 * the time of a small statement in memory. A campaign process never shares its states.
 */
const { function: define } = DatabaseSync.prototype;

// A state is given its function for checksums before anything is read from it.
DatabaseSync.prototype.function = function defineAlone(this: DatabaseSync, ...definition: unknown[]): void {
  if (this.location()?.endsWith("plenum.db")) this.exec("pragma locking_mode = exclusive");
  Reflect.apply(define, this, definition);
};

const { campaign } = (await import(process.argv[2] ?? "")) as { readonly campaign: Campaign };

process.on("message", (job: SeedJob) => {
  void playSeed(job).then((report) => process.send?.(report));
});
process.on("disconnect", () => process.exit());

async function playSeed({ seed, twice }: SeedJob): Promise<Report> {
  const startUsage = process.cpuUsage();
  const result = await campaign(seed);
  const { user, system } = process.cpuUsage(startUsage);
  const isReproduced = !twice || (await campaign(seed)).digest === result.digest;
  return { seed, same: isReproduced, durationMs: (user + system) / 1_000, ...result };
}
