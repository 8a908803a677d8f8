import { describe, expect, it } from "vitest";
import { allItems, allPages, never, openHarness, reply } from "./source-harness.ts";

/** As numbers, both ids would be equal. */
const [FIRST, SECOND] = ["9007199254740993", "9007199254740992"];

const page = (records: readonly string[]) =>
  `{"data":[${records.join()}],"meta":{"current_page":1,"last_page":1,"per_page":100,"total":${records.length}}}`;
const served = (records: readonly string[]) => openHarness(() => reply(200, page(records)));
const attributes = `"attributes":{"display_name":"Supply","description":null,"unit":null}`;

describe("ids beyond 2^53", () => {
  it("ids beyond 2^53 keep every digit in a list of tags", async () => {
    const harness = served([FIRST, SECOND].map((id) => `{"type":"tags","id":${id},${attributes}}`));
    const tags = await allItems(harness.source.tags({ siteId: 1 }, never()));
    expect(tags.map(({ id }) => id)).toEqual([FIRST, SECOND]);
  });

  it("values and logs of two tags with ids beyond 2^53 stay apart", async () => {
    const record = (id: string, more: string) => `{"id":${id},${attributes},${more}}`;
    const reading = served([record(FIRST, `"value":1`), record(SECOND, `"value":2`)]);
    const { readings } = await reading.source.read([FIRST, SECOND], "live", never());
    expect(readings.map(({ id, value }) => `${id} ${value}`)).toEqual([`${FIRST} 1`, `${SECOND} 2`]);
    const log = (id: string, value: string) =>
      record(id, `"measurements":[{"timestamp":"2026-06-01T00:00:00Z","value":${value}}]`);
    const logging = served([log(FIRST, "0.30000000000000004"), log(SECOND, "1152921504606846976")]);
    const range = { from: "2026-06-01T00:00:00Z", to: "2026-06-02T00:00:00Z" };
    const query = { tagIds: [FIRST, SECOND], ...range, resolution: "1h", timeZone: "UTC" } as const;
    const logs = await logging.source.history(query, "history", never());
    expect(logs.map(({ id }) => id)).toEqual([FIRST, SECOND]);
    expect(logs.map(({ measurements }) => [...measurements][0]?.value)).toEqual([0.30000000000000004, 2 ** 60]);
  });

  it("a site with an id beyond 2^53 is left out of the list and counted", async () => {
    const harness = served([`{"id":${FIRST},"display_name":"A"}`, `{"id":7,"display_name":"B"}`]);
    const [only] = await allPages(harness.source.sites({}, never()));
    expect(only?.items).toEqual([{ id: 7, displayName: "B" }]);
    expect(only?.total).toBe(2);
    expect((await harness.metrics.unknownWords.get()).values).toMatchObject([
      { labels: { field: "site.id" }, value: 1 },
    ]);
  });

  it("a site with an id beyond 2^53 is left out of the token information", async () => {
    const sites = `[{"id":${FIRST},"display_name":"A"},{"id":7,"display_name":"B"}]`;
    const token = `{"name":"t","abilities":["read:tags"],"expires_at":null,"sites":${sites}}`;
    const harness = openHarness(() => reply(200, `{"data":{"user":{},"token":${token}}}`));
    expect((await harness.source.me(never())).sites).toEqual([{ id: 7, displayName: "B" }]);
  });
});
