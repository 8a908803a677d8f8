import type { CampaignResult } from "../campaign/campaign.ts";
import { withSeededMathRandom } from "../campaign/seeded-chance.ts";
import { type SeededRandom, seededRandom } from "../commands/seeded-random.ts";
import { playAllFaults } from "./all-faults.ts";
import { playEstate } from "./estate.ts";
import { fleets } from "./fleets.ts";
import { outages } from "./outages.ts";

type Scene = (seed: number, random: SeededRandom) => Promise<CampaignResult>;

/** The seed chooses the scene by its last digit, so that any range of seeds plays all of them. */
const SCENES: readonly Scene[] = [
  ...Array.from({ length: 6 }, () => playAllFaults),
  playEstate,
  playEstate,
  outages,
  fleets,
];

export function campaign(seed: number): Promise<CampaignResult> {
  const scene = SCENES[seed % SCENES.length] ?? playAllFaults;
  return withSeededMathRandom(seed, () => scene(seed, seededRandom(seed)));
}
