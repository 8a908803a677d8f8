import { closeAfterTest } from "../test-resources.ts";
import { createHarness, type Harness, type HarnessOptions, SITE } from "./command-harness.ts";

export const TAGS: readonly string[] = Array.from({ length: 25 }, (_, n) => String(10250 + n));
export const TAG = "10250";

export async function openHarness(options: HarnessOptions = {}): Promise<Harness> {
  return closeAfterTest(await createHarness(options));
}

/** An entry of the allow-list for the values 15 to 25. */
export function allowed(tag_id: string, more: object = {}) {
  return { site_id: SITE, tag_id, type: "number" as const, min: 15, max: 25, ...more };
}

type FaultRule = NonNullable<NonNullable<HarnessOptions["simulator"]>["faults"]>[number];

/** Simulator options with one fault, by default of the first write request. */
export function faulty(
  fault: FaultRule["fault"],
  match: FaultRule["match"] = { endpoints: ["write"] },
  when: FaultRule["when"] = { count: 1 },
) {
  return { faults: [{ match, when, fault }] };
}
