import { expect, test } from "vitest";
import type { LoggedRequest } from "#src/simulator/request-log.ts";
import type { Evidence, ReceivedEvent, ServiceRecord } from "./evidence.ts";
import { judge } from "./judge.ts";

const SECOND = 1_000;
const request = (atMs: number, changes: Partial<LoggedRequest> = {}): LoggedRequest => ({
  ...{ number: 1, atMs, method: "GET", path: "/api/v1/alarms", query: "", endpoint: "alarms" },
  ...{ tokenName: atMs < 30 * SECOND ? "a" : "b", httpStatus: 200, errorStatus: null, limit: "none", faults: [] },
  ...changes,
});

const received = (id: string, changes: Partial<ReceivedEvent>): readonly ReceivedEvent[] =>
  (["webhook", "mqtt"] as const).map((end) => ({
    ...{ end, atMs: 0, id, key: `/sources/s01 ${id}`, source: "s01", type: "tag-value", digest: id, fact: null },
    ...changes,
  }));

const alarm = { of: "alarm", alarmId: "7", triggeredAtMs: 10 * SECOND } as const;
const counted = (value: number) =>
  ({ key: "tag", fact: { of: "value", tagId: "1", value } }) as const satisfies Partial<ReceivedEvent>;
const command = (outcome: string | null) => ({ of: "command", commandId: "c1", outcome, reason: null }) as const;

function quietMinute(): Evidence {
  return {
    fromMs: 0,
    graceMs: 15 * SECOND,
    services: [
      {
        source: "s01",
        requests: [3, 6, 9, 12, 15, 18, 21, 24, 31, 34, 37, 40, 43, 46, 49, 52, 55, 58].map((second) =>
          request(second * SECOND, { limit: "allowed" }),
        ),
        writes: [{ atMs: 20 * SECOND, requestNumber: 5, tagId: "5", value: 100, outcome: "held" }],
        transitions: [
          { atMs: 10_400, alarmId: "7", siteId: 12, kind: "raised", triggeredAtMs: 10_400 },
          { atMs: 40_000, alarmId: "7", siteId: 12, kind: "resolved", triggeredAtMs: 10_400 },
        ],
        counter: { tagId: "1", last: 9 },
      },
    ],
    received: [
      ...received("v1", counted(4)),
      ...received("r1", { type: "alarm-raised", fact: alarm }),
      ...received("v2", counted(5)),
      ...received("a1", { type: "command-accepted", fact: command(null) }),
      ...received("e1", { type: "command-result", fact: command("confirmed") }),
      ...received("d1", { type: "alarm-resolved", fact: alarm }),
      ...received("v2", counted(5)),
    ],
    log: ["v1", "r1", "v2", "a1", "e1", "d1"].map((id, n) => ({ source: "s01", position: n + 1, id })),
    due: new Map([["s01", 6]]),
    takeovers: [
      { source: "s01", from: null, to: "a", epoch: 1, atMs: 0, reason: "first" },
      { source: "s01", from: "a", to: "b", epoch: 2, atMs: 30 * SECOND, reason: "lease-ran-out" },
    ],
    faults: [
      {
        ...{ kind: "kill", member: "a", story: "kill a" },
        ...{ fromMs: 25 * SECOND, endMs: 28 * SECOND, toMs: 60 * SECOND },
      },
    ],
    commands: [{ id: "c1", source: "s01", tagId: "5", value: 100, isRepeated: false }],
  };
}

type Change = (quiet: Evidence) => Partial<Evidence>;

const withService =
  (change: (service: ServiceRecord) => Partial<ServiceRecord>): Change =>
  ({ services }) => ({ services: services.map((each) => ({ ...each, ...change(each) })) });
const withRequests = (...more: readonly LoggedRequest[]) =>
  withService(({ requests }) => ({ requests: [...requests, ...more] }));
const withTold =
  (...more: readonly ReceivedEvent[]): Change =>
  (quiet) => ({ received: [...quiet.received, ...more] });
const withoutTold =
  (isMissing: (received: ReceivedEvent) => boolean): Change =>
  (quiet) => ({ received: quiet.received.filter((each) => !isMissing(each)) });
const repeatedEpoch = { source: "s01", from: "b", to: "c", epoch: 2, atMs: 59_000, reason: "joined" };

test.each<[RegExp, Change]>([
  [/^$/, () => ({})],
  [/1 events never reached the mqtt: s01 4 a1/, withoutTold(({ id, end }) => id === "a1" && end === "mqtt")],
  [/at the webhook were never committed: x9/, withTold(...received("x9", {}))],
  [/came again at the mqtt with another content/, withTold(...received("v1", { ...counted(4), digest: "?" }))],
  [/out of order at the webhook: tag v1 \(1 after 3\)/, (quiet) => ({ received: quiet.received.toReversed() })],
  [/never told as resolved: 7 of 10000/, withoutTold(({ type }) => type === "alarm-resolved")],
  [
    /falsely told as resolved: 7 of 10000/,
    withService(({ transitions }) => ({ transitions: transitions.slice(0, 1) })),
  ],
  [/told twice as raised/, withTold(...received("r2", { type: "alarm-raised", fact: alarm }))],
  [/what never happened: alarm-vanished/, withTold(...received("g1", { type: "alarm-vanished", fact: alarm }))],
  [/3 was told after 5/, withTold(...received("v3", counted(3)))],
  [/10 was told, and the tag came to 9 only/, withTold(...received("v3", counted(10)))],
  [/refused 1 requests for the quota/, withRequests(request(59_000, { limit: "refused" }))],
  [
    /saw 21 requests of the quota within 60 s/,
    withRequests(...[58_500, 59_000, 59_500].map((atMs) => request(atMs, { limit: "allowed" }))),
  ],
  [
    /not polled for more than 15 s: s01 for 21.0 s at kill a/,
    withService(({ requests }) => ({ requests: requests.filter(({ atMs }) => atMs < 25_000 || atMs > 45_000) })),
  ],
  [
    /1 requests by a member that holds nothing: a asked s01 for \/api\/v1\/alarms 5000 ms after it lost it, at kill a/,
    withRequests(request(35_000, { tokenName: "a" })),
  ],
  [/taken over twice with one epoch: s01 2/, ({ takeovers }) => ({ takeovers: [...takeovers, repeatedEpoch] })],
  [/written 2 times: s01 5 100/, withService(({ writes }) => ({ writes: [...writes, ...writes] }))],
  [/written and never asked for: s01 5 100/, () => ({ commands: [] })],
  [/c1 was accepted and has 0 ends/, withoutTold(({ type }) => type === "command-result")],
  [/c1 was accepted and has 2 ends/, withTold(...received("e2", { type: "command-result", fact: command("unknown") }))],
  [/c1 is confirmed and was not written/, withService(() => ({ writes: [] }))],
  [
    /c1 was written and is expired/,
    (quiet) => ({
      received: quiet.received.map((each) =>
        each.type === "command-result" ? { ...each, fact: command("expired") } : each,
      ),
    }),
  ],
])("the check of a takeover campaign finds the problem %s", (problem, change) => {
  const quiet = quietMinute();
  expect(judge({ ...quiet, ...change(quiet) }).problems.join("\n")).toMatch(problem);
});

test("a source that moves again before its first request does not count as a late first request", () => {
  const quiet = quietMinute();
  const moves = [
    { source: "s01", from: "a", to: "b", epoch: 2, atMs: 28_500, reason: "moved" },
    { source: "s01", from: "b", to: "a", epoch: 3, atMs: 29_000, reason: "moved" },
    { source: "s01", from: "a", to: "b", epoch: 4, atMs: 30_000, reason: "moved" },
  ];
  const { figures } = judge({ ...quiet, takeovers: [...quiet.takeovers.slice(0, 1), ...moves] });
  expect(Object.fromEntries(figures)["from the takeover to the first request"]).toBe("1.0 s, 1.0 s, 1.0 s of 1");
});
