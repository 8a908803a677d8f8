export type Campaign = (seed: number) => Promise<CampaignResult>;

export interface CampaignResult {
  readonly problems: readonly Problem[];
  readonly story: readonly string[];
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
