import type { EndpointName, Fault, FaultRule } from "./fault-options.ts";
import type { Random } from "./random.ts";

/** What a rule is matched against. */
export interface Subject {
  readonly endpoint: EndpointName | null;
  readonly method: string;
  readonly siteIds: ReadonlySet<number>;
  readonly tagIds: ReadonlySet<string>;
  readonly page: number;
}

export interface FaultPlan {
  readonly rules: readonly FaultRule[];
  /** Replaces the plan; counting and windows begin anew. */
  set(rules: readonly FaultRule[], nowMs: number): void;
  /** The faults that hit this request, in the order of the rules. */
  hits(subject: () => Subject, nowMs: number): Fault[];
}

interface Running {
  readonly rule: FaultRule;
  readonly setMs: number;
  matched: number;
  hit: number;
}

export function createFaultPlan(initial: readonly FaultRule[], nowMs: number, random: Random): FaultPlan {
  const start = (rules: readonly FaultRule[], setMs: number): Running[] =>
    rules.map((rule) => ({ rule, setMs, matched: 0, hit: 0 }));
  let running = start(initial, nowMs);
  return {
    get rules() {
      return running.map(({ rule }) => rule);
    },
    set(rules, atMs) {
      running = start(rules, atMs);
    },
    hits(subject, atMs) {
      if (running.length === 0) return [];
      const asked = subject();
      return running.filter((one) => strikes(one, asked, atMs, random)).map(({ rule }) => rule.fault);
    },
  };
}

function strikes(running: Running, subject: Subject, nowMs: number, random: Random): boolean {
  const { match, when } = running.rule;
  if (
    match.endpoints !== undefined &&
    (subject.endpoint === null || !match.endpoints.includes(subject.endpoint))
  )
    return false;
  if (match.method !== undefined && match.method !== subject.method) return false;
  if (match.site_id !== undefined && !subject.siteIds.has(match.site_id)) return false;
  if (match.tag_id !== undefined && !subject.tagIds.has(match.tag_id)) return false;
  if (match.page !== undefined && match.page !== subject.page) return false;

  const startMs = running.setMs + (when.after_s ?? 0) * 1000;
  if (nowMs < startMs || (when.for_s !== undefined && nowMs >= startMs + when.for_s * 1000)) return false;
  running.matched += 1;
  const turn = running.matched - (when.skip ?? 0);
  if (turn < 1 || (when.every !== undefined && turn % when.every !== 0)) return false;
  if (when.count !== undefined && running.hit >= when.count) return false;
  if (when.probability !== undefined && random.next() >= when.probability) return false;
  running.hit += 1;
  return true;
}
