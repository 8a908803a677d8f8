import { beforeEach, describe, expect, test } from "vitest";
import { makeEvent, sourceUri } from "#src/core/model/event.ts";
import type { StoreChange } from "#src/engine/store/store.ts";
import { createGroupCommit, type GroupCommit } from "#src/engine/sync/read/commit-readings.ts";
import { createVirtualClock, type VirtualClock } from "../virtual-clock.ts";

let clock: VirtualClock;
let commits: { readonly atMs: number; readonly change: StoreChange }[];
let fault: Error | null;
let groupCommit: GroupCommit;
let singleSourceCommit: GroupCommit;
beforeEach(() => {
  clock = createVirtualClock(Date.parse("2026-11-21T09:00:00Z"));
  commits = [];
  fault = null;
  const store = {
    async commit(change: StoreChange) {
      if (fault !== null) throw fault;
      commits.push({ atMs: clock.monotonic(), change });
      return { lastPosition: 0, repeated: [] };
    },
  };
  groupCommit = createGroupCommit({ store, clock, sourceCount: 20 });
  singleSourceCommit = createGroupCommit({ store, clock, sourceCount: 1 });
});

const never = new AbortController().signal;
const put = (source: string, value: number) => ({
  documents: [{ set: `value/${source}`, put: [["1", value] as const] }],
});
async function outcomeOf(work: Promise<void>): Promise<string> {
  const result = await work.then(
    () => "durable",
    (error: Error) => error.message,
  );
  return `${result} at ${clock.monotonic()}`;
}
const commit = (source: string, value: number, hurry = never, among = groupCommit) =>
  outcomeOf(among.commit(source, async () => put(source, value), hurry));
async function committed(): Promise<void> {
  const hurried = new AbortController();
  hurried.abort();
  await commit("a", 0, hurried.signal);
}
const listSources = ({ change }: { readonly change: StoreChange }) =>
  (change.documents ?? []).map(({ set }) => set.slice("value/".length));

describe("the common transaction for replies of several sources", () => {
  test("commits replies of several sources together after 250 ms, and later replies a second after that", async () => {
    const firstOutcome = commit("a", 1);
    await clock.advance(100);
    const secondOutcome = commit("b", 1);
    await clock.advance(200);
    const laterOutcomes = ["c", "d", "e"].map((source) => commit(source, 1));
    await clock.advance(2_000);
    expect([await firstOutcome, await secondOutcome]).toEqual(["durable at 250", "durable at 250"]);
    expect(await Promise.all(laterOutcomes)).toEqual(laterOutcomes.map(() => "durable at 1250"));
    expect(commits.map(listSources)).toEqual([
      ["a", "b"],
      ["c", "d", "e"],
    ]);
  });

  test("commits each reply at once when there is only one source", async () => {
    const outcomes: Promise<string>[] = [];
    for (let n = 0; n < 3; n += 1) {
      outcomes.push(commit("a", n, never, singleSourceCommit));
      await clock.advance(3_000);
    }
    expect(await Promise.all(outcomes)).toEqual(["durable at 0", "durable at 3000", "durable at 6000"]);
  });

  test("commits at most 20 replies in one transaction", async () => {
    await committed();
    const outcomes = Array.from({ length: 50 }, (_, n) => commit(`s${n}`, 1));
    await clock.advance(1_000);
    await Promise.all(outcomes);
    expect(commits.map((each) => listSources(each).length)).toEqual([1, 20, 20, 10]);
  });

  test("commits several replies of one source in order, one per transaction, without another wait", async () => {
    await committed();
    const outcomes = [commit("a", 1), commit("b", 1), commit("a", 2), commit("a", 3)];
    await clock.advance(1_000);
    expect(await Promise.all(outcomes)).toEqual(outcomes.map(() => "durable at 1000"));
    expect(commits.map(listSources)).toEqual([["a"], ["a", "b"], ["a"], ["a"]]);
  });

  test("commits the documents, events and records of all waiting replies together", async () => {
    await committed();
    const eventFields = { type: "tag-value", subject: "site/1/tag/1", time: "2026-11-21T09:00:00.000Z" } as const;
    const event = (source: string) =>
      makeEvent({ ...eventFields, source: sourceUri(source), facts: [source], data: {} as never });
    const records = [{ log: "audit", body: 1 }];
    const [b, c] = [event("b"), event("c")];
    void groupCommit.commit("b", async () => ({ ...put("b", 1), events: [b] }), never);
    void groupCommit.commit("c", async () => ({ events: [c], records }), never);
    await clock.advance(1_000);
    expect(commits.at(-1)?.change).toEqual({ ...put("b", 1), events: [b, c], records });
  });

  test("commits waiting replies at once when the worker stops", async () => {
    await committed();
    const stop = new AbortController();
    const outcome = commit("b", 1, stop.signal);
    await clock.advance(300);
    stop.abort();
    await clock.advance(0);
    expect(await outcome).toBe("durable at 300");
  });
});

describe("a failure in the common transaction for several sources", () => {
  test("a failed change function rejects only the commit of its own reply", async () => {
    await committed();
    const bad = outcomeOf(groupCommit.commit("b", () => Promise.reject(new Error("two values for one tag")), never));
    const goodOutcome = commit("c", 1);
    await clock.advance(1_000);
    expect([await bad, await goodOutcome]).toEqual(["two values for one tag at 1000", "durable at 1000"]);
    expect(commits.map(listSources)).toEqual([["a"], ["c"]]);
  });

  test("a failed transaction rejects the commits of all its replies, and of no later reply", async () => {
    await committed();
    fault = new Error("the disk is full");
    const outcomes = [commit("b", 1), commit("c", 1)];
    await clock.advance(1_000);
    expect(await Promise.all(outcomes)).toEqual(outcomes.map(() => "the disk is full at 1000"));
    fault = null;
    const nextOutcome = commit("b", 2);
    await clock.advance(1_000);
    expect(await nextOutcome).toBe("durable at 2000");
  });
});
