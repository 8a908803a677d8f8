import { type StoredTagQuarantine, syncSet } from "#src/engine/sync/stored-documents.ts";
import { createTagFilter } from "#src/engine/sync/tag-selection.ts";
import type { Harness } from "../loss-harness.ts";
import type { ReceivedEvents } from "../received-events.ts";
import { clockTime } from "./punctual.ts";

/** Rule 5: no displayed figure claims that values are fresher than they are. */

const SLACK_MS = 5_000;
const PLAN_SLACK_MS = 20_000;
const NOTICED_MS = 780_000;

export async function displayedAgesAreTrue(harness: Harness, far: ReceivedEvents): Promise<readonly string[]> {
  const { virtual, world } = harness;
  const nowMs = harness.now();
  const url = virtual.worker.statusUrl();
  const metrics = await (await fetch(`${url}/metrics`)).text();
  const status = (await (await fetch(`${url}/api/status`)).json()) as StatusView;
  const [source] = status.sources;
  const counted = await countedTags(harness, far);
  const problems: string[] = [];
  for (const entry of world.read.filter(({ on_change }) => !on_change)) {
    const agesMs = [...world.tags].flatMap(([siteId, ids]) =>
      ids.flatMap((id) => {
        const tag = { id, displayName: "", description: null, unit: null };
        const readClass = world.read.find(({ select }) => createTagFilter(select)({ tag, siteId, systemIds: [] }));
        const lastValue = far.values.get(id)?.at(-1);
        return readClass === entry && lastValue !== undefined && counted.has(id) ? [nowMs - lastValue.atMs] : [];
      }),
    );
    if (agesMs.length === 0) continue;
    const realMs = Math.max(...agesMs);
    const checkClaim = (what: string, seconds: number | null | undefined, slackMs: number) => {
      if (seconds == null || seconds * 1_000 >= realMs - slackMs) return;
      problems.push(
        `${what} of ${entry.name} is ${Math.round(seconds)} s at ${clockTime(nowMs)}, and really ${Math.round(realMs / 1_000)} s`,
      );
    };
    checkClaim("the gauge", gauge(metrics, "plenum_freshness_achieved_seconds", `class="${entry.name}"`), SLACK_MS);
    const viewClass = source?.plan?.classes.find(({ name }) => name === entry.name);
    checkClaim("the status", viewClass?.measuredSeconds, PLAN_SLACK_MS);
  }
  const readMs = lastReadMs(harness);
  const success = gauge(metrics, "plenum_poll_last_success_timestamp_seconds", 'job="live"');
  const statedSuccess = source?.jobs.find(({ name }) => name === "live")?.lastSuccess;
  const hasTags = counted.size > 0 && readMs !== null;
  if (hasTags && success !== null && success * 1_000 > readMs + SLACK_MS)
    problems.push(
      `live reads are said to have succeeded at ${clockTime(success * 1_000)}, the last read was answered at ${clockTime(readMs)}`,
    );
  if (hasTags && statedSuccess != null && Date.parse(statedSuccess) > readMs + SLACK_MS)
    problems.push(
      `the status says that live reads succeeded at ${statedSuccess}, the last read was answered at ${clockTime(readMs)}`,
    );
  return problems;
}

interface StatusView {
  readonly sources: readonly {
    readonly plan: {
      readonly classes: readonly { readonly name: string; readonly measuredSeconds: number | null }[];
    } | null;
    readonly jobs: readonly { readonly name: string; readonly lastSuccess: string | null }[];
  }[];
}

/** Tags with values that are not in quarantine and have been listed for a while. */
async function countedTags(harness: Harness, far: ReceivedEvents): Promise<ReadonlySet<string>> {
  const set = syncSet("quarantine", "main");
  const quarantined = await harness.virtual.worker.store.documents<StoredTagQuarantine>(set);
  const nowMs = harness.now();
  const hiddenTags = new Set(
    harness.faults.filter(({ toMs }) => toMs + NOTICED_MS > nowMs).flatMap(({ fault }) => [...(fault.hidesTags ?? [])]),
  );
  const responding = [...far.values].filter(([, emitted]) => emitted.at(-1)?.isNull === false);
  return new Set(responding.map(([id]) => id).filter((id) => !quarantined.has(id) && !hiddenTags.has(id)));
}

function lastReadMs({ virtual }: Harness): number | null {
  const onTheWire = ["reset", "cut", "slow", "malformed"];
  const goodRequest = virtual.simulator.truth
    .requests()
    .findLast(
      ({ endpoint, httpStatus, errorStatus, faults }) =>
        endpoint === "read" &&
        httpStatus === 200 &&
        errorStatus === null &&
        !faults.some((kind) => onTheWire.includes(kind) || kind === "html"),
    );
  return goodRequest?.atMs ?? null;
}

function gauge(metrics: string, name: string, label: string): number | null {
  const line = metrics.split("\n").find((each) => each.startsWith(`${name}{`) && each.includes(label));
  return line === undefined ? null : Number(line.split(" ").at(-1));
}
