/**
 * Several expositions of metrics in the text format of Prometheus as one: each family is declared once, with the samples
 * of all below it.
 *
 *   # TYPE plenum_outbox_depth gauge
 *   plenum_outbox_depth{sink="broker",source="north"} 3
 *   plenum_outbox_depth{sink="broker",source="south"} 0
 */
export function joinExpositions(texts: readonly string[]): string {
  const families = new Map<string, { head: string[]; readonly samples: string[] }>();
  for (const text of texts) {
    let family = "";
    let isFirst = false;
    for (const line of text.split("\n")) {
      if (line === "") continue;
      const [, name] = /^# (?:HELP|TYPE) (\S+)/.exec(line) ?? [];
      if (name !== undefined && name !== family) {
        family = name;
        isFirst = !families.has(name);
        if (isFirst) families.set(name, { head: [], samples: [] });
      }
      const joined = families.get(family);
      if (name === undefined) joined?.samples.push(line);
      else if (isFirst) joined?.head.push(line);
    }
  }
  const lines = [...families.values()].flatMap(({ head, samples }) =>
    samples.length === 0 ? [] : [...head, ...samples],
  );
  return `${lines.join("\n")}\n`;
}
