/** Plays one random schedule from a seed and judges it. A module that has one exports it as `campaign`. */
export type Campaign = (seed: number) => Promise<CampaignResult>;

/** What one seed came to. */
export interface CampaignResult {
  /** What went wrong, as sentences, by the name of the rule. */
  readonly problems: readonly Problem[];
  /** What was done to the world, as sentences, for whoever replays it. */
  readonly story: readonly string[];
  /** Over every event and every request: two runs of one seed have the same. */
  readonly digest: string;
  /** How often each fault occurred, by its name; a campaign in which one never occurred has judged nothing of it. */
  readonly counts?: Readonly<Record<string, number>>;
  readonly requests: number;
  readonly simulatedMs: number;
}

export interface Problem {
  readonly rule: string;
  readonly text: string;
}
