import type { Site } from "../../../core/model/building.ts";
import { type Event, makeEvent, sourceUri, subjectOf } from "../../../core/model/event.ts";
import {
  SENSOR_FINDINGS,
  type SensorFinding,
  type SensorFindingKind,
  type SilentSensors,
} from "../../../core/model/tag-facts.ts";

const FINDINGS_PER_PART = 500;
/** Names can be long: what a part holds as text stays below what a message broker usually takes. */
const CHARACTERS_PER_PART = 150_000;

/** What was noticed of one site in one period, as the parts that are told and kept. Pure. */
export function reportParts(
  site: Site,
  period: Pick<SilentSensors, "from" | "to" | "watchedHours">,
  seen: Pick<SilentSensors, "tags" | "judged"> & { readonly findings: readonly SensorFinding[] },
): readonly SilentSensors[] {
  const { findings, tags, judged } = seen;
  const portions = portionsOf(findings);
  const counts = Object.fromEntries(
    SENSOR_FINDINGS.map((kind) => [kind, findings.filter((one) => one.finding === kind).length]),
  ) as Record<SensorFindingKind, number>;
  return portions.map((portion, i) => ({
    site,
    ...period,
    tags,
    judged,
    counts,
    part: i + 1,
    parts: portions.length,
    findings: portion,
  }));
}

/** At least one, so that a site where all is well is told too. */
function portionsOf(findings: readonly SensorFinding[]): readonly (readonly SensorFinding[])[] {
  const portions: SensorFinding[][] = [[]];
  let characters = 0;
  for (const finding of findings) {
    const size = JSON.stringify(finding).length;
    const portion = portions.at(-1) ?? [];
    if (
      portion.length >= FINDINGS_PER_PART ||
      (portion.length > 0 && characters + size > CHARACTERS_PER_PART)
    ) {
      portions.push([finding]);
      characters = size;
    } else {
      portion.push(finding);
      characters += size;
    }
  }
  return portions;
}

/** The same period and part have the same id, also after a crash in the middle of a report. */
export function reportEvent(source: string, data: SilentSensors): Event<"silent-sensors"> {
  return makeEvent({
    type: "silent-sensors",
    source: sourceUri(source),
    subject: subjectOf("site", null, String(data.site.id)),
    time: data.to,
    siteId: data.site.id,
    data,
    facts: [data.from, data.part],
  });
}
