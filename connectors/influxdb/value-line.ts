import { createBySubject } from "../../src/core/model/by-subject.ts";
import type { Event } from "../../src/core/model/event.ts";
import { lineOf, momentOf, WHOLE_MS } from "./line.ts";
import { type PointSettings, valueTags } from "./points.ts";

/** What is remembered of so many tags of a source, at 200 bytes each. */
const HEADS_MAX = 4_000;

interface Head {
  readonly siteid: string | undefined;
  readonly unit: string | null;
  /** Measurement and tags of the line, up to its first field. */
  readonly text: string;
}

/**
 * The lines of values, which are nearly all that there is: what stands before the fields is the same for all values of a
 * tag. Null for an event that is unusual in any way: `linesOf` says what its lines are. A test compares the two.
 *
 *     tag_value,site_id=1,source=main,tag_id=7,unit=°C │ good=T,latency_ms=12,quality="good",value=21.5 │ 1795161600000000000
 */
export function createValueLines(settings: PointSettings): (event: Event) => string | null {
  const heads = createBySubject<Head>(HEADS_MAX);
  let lastTime = "";
  /** The same as nanoseconds. */
  let last = "";

  function headOf(event: Event<"tag-value">): string {
    const { source, subject, siteid } = event;
    const { unit } = event.data.tag;
    const known = heads.get(source, subject);
    if (known !== undefined && known.siteid === siteid && known.unit === unit) return known.text;
    const measurement = `${settings.prefix}tag_value`;
    const whole = lineOf({ measurement, tags: valueTags(event, settings), fields: { x: true }, timeMs: 0 });
    const text = whole.slice(0, -`x=T 0${WHOLE_MS}`.length);
    heads.set(source, subject, { siteid, unit, text });
    return text;
  }

  return (event) => {
    if (event.type !== "tag-value" || settings.namesOf !== undefined) return null;
    const told = event as Event<"tag-value">;
    const { value, quality, latencyMs, behindGateway, type } = told.data;
    if (behindGateway !== null || type !== undefined || !Number.isFinite(latencyMs)) return null;
    if (typeof value === "number" && !Number.isFinite(value)) return null;
    if (quality !== "good" && quality !== "bad" && quality !== "uncertain") return null;
    if (told.time !== lastTime) {
      last = `${momentOf(told.time)}${WHOLE_MS}`;
      lastTime = told.time;
    }
    const good = quality === "good" ? "T" : "F";
    const before = `${headOf(told)}good=${good},latency_ms=${latencyMs},quality="${quality}"`;
    if (value === null) return `${before} ${last}`;
    if (typeof value === "boolean") return `${before},value_bool=${value ? "T" : "F"} ${last}`;
    return typeof value === "number" ? `${before},value=${value} ${last}` : null;
  };
}
