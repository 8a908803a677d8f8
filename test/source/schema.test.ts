import { describe, expect, it } from "vitest";
import { type RecordSchema, recordSchemas } from "#src/engine/source/schema.ts";
import { alarmRecord, GOOD, never, reply, tagRecord, trialSource } from "./trial-source.ts";

function alarm(change: (attributes: Record<string, unknown>) => void) {
  const noted: string[] = [];
  const record = structuredClone(alarmRecord("a1"));
  change(record.attributes as unknown as Record<string, unknown>);
  const alarm = parsed(recordSchemas((field) => noted.push(field)).alarm(undefined), record);
  return { alarm, noted };
}

function parsed<T>(schema: RecordSchema<T>, record: unknown): T {
  const read = schema.safeParse(record);
  if (!read.success) throw read.error;
  return read.data;
}

/** Every place inside a record, as a list of keys. */
function places(value: unknown, path: readonly string[] = []): string[][] {
  if (typeof value !== "object" || value === null) return [];
  return Object.entries(value).flatMap(([key, inner]) => [[...path, key], ...places(inner, [...path, key])]);
}

function changed(record: unknown, [key = "", ...rest]: readonly string[], to: unknown): unknown {
  const copy = { ...(record as Record<string, unknown>) };
  if (rest.length > 0) copy[key] = changed(copy[key], rest, to);
  else if (to === undefined) delete copy[key];
  else copy[key] = to;
  return copy;
}

describe("a tolerant reader (trap 18)", () => {
  const NONSENSE = [undefined, null, "", "unheard-of", -1, 1e308, true, [], {}, [null], { id: 3 }];
  const LISTS = ["alarms", "tags", "gateways", "hosts", "systems"] as const;

  it.each(LISTS)("%s: no place except the id can cost the record or crash", (name) => {
    const schemas = recordSchemas(() => {});
    const Item = {
      ...schemas,
      alarms: schemas.alarm(undefined),
      tags: schemas.tag,
      gateways: schemas.gateway,
      hosts: schemas.host,
      systems: schemas.system,
    }[name];
    const [record] = (GOOD[name] as { data: unknown[] }).data;
    for (const place of places(record)) {
      if (place.join() === "id") continue;
      for (const to of NONSENSE) {
        const parsed = Item.safeParse(changed(record, place, to));
        expect({ place, to, parsed }).toMatchObject({
          parsed: { success: true, data: { id: expect.any(String) } },
        });
      }
    }
  });

  it("no nonsense in any place resolves an alarm", () => {
    const { alarm: Alarm } = recordSchemas(() => {});
    for (const place of places(alarmRecord("a1"))) {
      for (const to of NONSENSE) {
        const parsed = Alarm(undefined).safeParse(changed(alarmRecord("a1"), place, to));
        expect({
          place,
          to,
          resolved: parsed.data?.resolvedAt ?? null,
          status: parsed.data?.status,
        }).toMatchObject({
          resolved: null,
          status: expect.not.stringMatching(/^resolved$/),
        });
      }
    }
  });

  it("unknown words are kept and counted", () => {
    const { alarm: read, noted } = alarm((attributes) => {
      attributes.status = "shelved";
      attributes.trigger = { ...(attributes.trigger as object), priority: "D" };
    });
    expect(read).toMatchObject({ status: "shelved", trigger: { priority: "D" } });
    expect(noted.sort()).toEqual(["alarm.status", "alarm.trigger.priority"]);
  });

  it("a broken resolved_at resolves nothing, and its text is kept", () => {
    const { alarm: read, noted } = alarm((attributes) => {
      attributes.resolved_at = "yes";
    });
    expect(read).toMatchObject({ resolvedAt: null, resolvedAtRaw: "yes" });
    expect(noted).toEqual(["alarm.resolved_at"]);
  });

  it("a trigger time without an offset stays as it came", () => {
    const { alarm: read } = alarm((attributes) => {
      attributes.triggered_at = "2026-06-01T12:00:00";
    });
    expect(read).toMatchObject({ triggeredAt: "2026-06-01T12:00:00", triggeredAtRaw: "2026-06-01T12:00:00" });
  });

  it("an alarm that does not say its site belongs to the one site that was asked for", () => {
    const record = changed(alarmRecord("a1"), ["attributes", "site"], null);
    expect(parsed(recordSchemas(() => {}).alarm(7), record).site.id).toBe(7);
    expect(parsed(recordSchemas(() => {}).alarm(undefined), record).site.id).toBe(0);
  });

  it("ids are text, whether they came as text or as number", () => {
    const { tag, site } = recordSchemas(() => {});
    expect(parsed(tag, { ...tagRecord("1"), id: 42 }).id).toBe("42");
    expect(parsed(site, { id: "42", display_name: "x" }).id).toBe(42);
  });

  it("a gateway that does not say whether it is online is neither online nor offline", () => {
    const [record] = (GOOD.gateways as { data: unknown[] }).data;
    const { gateway } = recordSchemas(() => {});
    expect(parsed(gateway, changed(record, ["attributes", "online"], null)).online).toBeNull();
    expect(parsed(gateway, changed(record, ["attributes", "online"], "yes")).online).toBeNull();
    expect(parsed(gateway, changed(record, ["attributes", "online"], 1)).online).toBe(true);
  });
});

describe("texts that harm (trap 17)", () => {
  it("prototypes stay what they were", () => {
    const text = `{"type":"tags","id":"1","__proto__":{"polluted":1},"attributes":{"__proto__":{"polluted":1},"display_name":"x","constructor":{"prototype":{"polluted":1}}}}`;
    const tag = parsed(recordSchemas(() => {}).tag, JSON.parse(text));
    expect(tag).toEqual({ id: "1", displayName: "x", description: null, unit: null });
    expect(({} as Record<string, unknown>).polluted).toBeUndefined();
    expect(Object.getPrototypeOf(tag)).toBe(Object.prototype);
  });

  it("lone surrogates become what every store would make of them", () => {
    const record = changed(tagRecord("1"), ["attributes", "display_name"], "a\ud800b");
    expect(parsed(recordSchemas(() => {}).tag, record).displayName).toBe("a\ufffdb");
  });

  it("names have an end", () => {
    const record = changed(tagRecord("1"), ["attributes", "display_name"], "x".repeat(1_000_000));
    expect(parsed(recordSchemas(() => {}).tag, record).displayName).toHaveLength(10_000);
  });
});

describe("the token information is strict about what it grants", () => {
  it.each([
    ["no token", ["token"], null],
    ["no abilities", ["token", "abilities"], undefined],
    ["no sites", ["token", "sites"], null],
    ["a site without id", ["token", "sites"], [{ display_name: "x" }]],
  ])("%s is malformed: a lost scope freezes alarms", async (_name, place, to) => {
    const body = { data: changed((GOOD.me as { data: unknown }).data, place, to) };
    const trial = trialSource(() => reply(200, body));
    await expect(trial.source.me(never())).rejects.toMatchObject({ kind: "malformed" });
  });

  it("every ability in one word is each that the interface names, and no other", async () => {
    const body = { data: changed((GOOD.me as { data: unknown }).data, ["token", "abilities"], ["*"]) };
    const trial = trialSource(() => reply(200, body));
    const { abilities } = await trial.source.me(never());
    expect(abilities.toSorted()).toEqual([
      "read:alarms",
      "read:gateways",
      "read:hosts",
      "read:systems",
      "read:tags",
      "write:tags",
    ]);
  });

  it("an expiry that is no time is unknown, not past", async () => {
    const body = { data: changed((GOOD.me as { data: unknown }).data, ["token", "expires_at"], "never") };
    const trial = trialSource(() => reply(200, body));
    expect((await trial.source.me(never())).expiresAt).toBeNull();
  });
});

describe("an empty object that came as the empty array of PHP", () => {
  const Alarm = recordSchemas(() => {}).alarm(undefined);
  const of = (more: object) => {
    const record = alarmRecord("a1");
    return parsed(Alarm, { ...record, attributes: { ...record.attributes, ...more } });
  };

  it.each([[[]], [{}]])("%j says nothing of an alarm's last event", (empty) => {
    expect(of({ last_active_event: empty }).lastActiveEvent).toBeNull();
  });

  it.each(["site", "trigger", "last_active_event"])("%s costs nothing else of the record", (name) => {
    const whole = of({});
    const key = name === "last_active_event" ? "lastActiveEvent" : name;
    expect({ ...of({ [name]: [] }), [key]: null }).toEqual({ ...whole, [key]: null });
  });

  it("lists of the token come as objects, too", () => {
    const { data } = GOOD.me as { data: { token: object } };
    const token = { ...data.token, abilities: { 0: "read:tags", 2: "read:alarms" }, sites: {} };
    expect(parsed(recordSchemas(() => {}).tokenInfo, { user: [], token })).toMatchObject({
      abilities: ["read:tags", "read:alarms"],
      sites: [],
    });
  });
});
