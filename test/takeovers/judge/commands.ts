import { type Evidence, summarizeTexts, type Verdict } from "../evidence.ts";

export function judgeCommands({ commands, services, told }: Evidence): Verdict {
  const problems: string[] = [];
  const written = new Map<string, number>();
  const nameOf = (source: string, tagId: string, value: unknown) => `${source} ${tagId} ${value}`;
  for (const { source, writes } of services)
    for (const { tagId, value } of writes) {
      const name = nameOf(source, tagId, value);
      written.set(name, (written.get(name) ?? 0) + 1);
    }
  const wanted = new Set(commands.map(({ source, tagId, value }) => nameOf(source, tagId, value)));
  for (const [name, times] of written) {
    if (times > 1) problems.push(`written ${times} times: ${name}`);
    if (!wanted.has(name)) problems.push(`written and never asked for: ${name}`);
  }

  const accepted = new Set<string>();
  const ends = new Map<string, Map<string, string>>();
  const reasons = new Map<string, number>();
  for (const { end, type, id, fact } of told) {
    if (end !== "webhook" || fact?.of !== "command") continue;
    if (type === "command-accepted") accepted.add(fact.commandId);
    if (type !== "command-result" || fact.outcome === "duplicate") continue;
    const own = ends.get(fact.commandId) ?? new Map<string, string>();
    ends.set(fact.commandId, own.set(id, fact.outcome ?? ""));
    if (fact.outcome === "rejected") {
      const reason = fact.reason ?? "";
      reasons.set(reason, (reasons.get(reason) ?? 0) + 1);
    }
  }
  const outcomes = new Map<string, number>();
  for (const { id, source, tagId, value, isRepeated } of commands) {
    const all = [...(ends.get(id)?.values() ?? [])];
    const isRefusedFirst = isRepeated && all.length > 1 && all[0] === "rejected";
    const own = isRefusedFirst ? all.slice(1) : all;
    if (accepted.has(id) && own.length !== 1)
      problems.push(`${id} was accepted and has ${own.length} ends: ${own.join(", ")}`);
    const [outcome] = own;
    if (outcome === undefined) continue;
    outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + 1);
    const isWritten = written.has(nameOf(source, tagId, value));
    if (outcome === "confirmed" && !isWritten) problems.push(`${id} is confirmed and was not written`);
    if (["rejected", "expired", "superseded"].includes(outcome) && isWritten)
      problems.push(`${id} was written and is ${outcome}`);
  }
  const shown = (counts: ReadonlyMap<string, number>) =>
    [...counts]
      .toSorted(([, a], [, b]) => b - a)
      .map(([name, n]) => `${n} ${name}`)
      .join(", ");
  return {
    problems: problems.length === 0 ? [] : [summarizeTexts(problems)],
    figures: [
      ["commands sent, accepted, written", `${commands.length}, ${accepted.size}, ${written.size}`],
      ["how they ended", shown(outcomes)],
      ["why they were rejected", shown(reasons)],
    ],
  };
}
