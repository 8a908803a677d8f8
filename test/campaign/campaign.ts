/** Plays one random schedule from a seed and judges it. A module that has one exports it as `campaign`. */
export type Campaign = (seed: number) => Promise<CampaignResult>;

/** What one seed came to. */
export interface CampaignResult {
  /** Violations of the rules. */
  readonly problems: readonly Problem[];
  /** Everything that happened, as text for a replay. */
  readonly story: readonly string[];
  /** Hash of all events and requests; equal for two runs of one seed. */
  readonly digest: string;
  /** Occurrences of each fault by name; a campaign must contain each fault. */
  readonly counts?: Readonly<Record<string, number>>;
  readonly requests: number;
  readonly simulatedMs: number;
}

export interface Problem {
  readonly rule: string;
  readonly text: string;
}
