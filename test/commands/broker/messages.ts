import type { SeededRandom } from "../seeded-random.ts";

/** What was done to a message so that it may not be written; `lawful` when nothing was. */
export type Kind = "lawful" | keyof typeof REASONS;

/** With which reasons the gate may refuse what is unlawful in only one way. */
export const REASONS = {
  retained: ["retained"],
  stale: ["expired"],
  future: ["clock-skew"],
  "out-of-range": ["out-of-range"],
  "wrong-type": ["wrong-type"],
  unlisted: ["not-allowed"],
  "not-from-here": ["not-allowed"],
  "not-restorable": ["not-restorable"],
  malformed: ["unreadable", "invalid"],
  misshapen: ["invalid"],
  oversized: ["too-large"],
  loop: ["loop"],
  stop: ["stop"],
} as const satisfies Readonly<Record<string, readonly string[]>>;

/** One message for the broker, without the mark that tells its deliveries apart. */
export interface Message {
  readonly kind: Kind;
  /** What it is to a worker that listens by MQTT 3.1.1, to whom the broker hands no properties. */
  readonly kindBy3: Kind;
  readonly topic: string;
  readonly payload: Buffer;
  readonly retain: boolean;
  /** What only MQTT 5 can carry; a message that has it is sent by 5. */
  readonly beside: Beside | null;
  /** What it asks for, one unit for each result that it may have; a single one when it asks for nothing. */
  readonly units: readonly Unit[];
}

export interface Beside {
  readonly userProperties?: Readonly<Record<string, string>>;
  readonly responseTopic?: string;
  readonly correlationData?: Buffer;
  readonly messageExpiryInterval?: number;
}

/** One value for one tag. Each has a value of its own, by which a write is known at the service. */
export interface Unit {
  readonly id: string;
  readonly tag: string;
  readonly value: number;
  readonly ttlMs: number;
  /** When it says that it was issued; null when it says nothing. */
  readonly issuedAtMs: number | null;
  readonly forMs: number | null;
  readonly expect: number | null;
}

/** The tags of the building, by what the allow-list says of them; those of `open` and `quiet` are written between 0 and 1000. */
export interface Tags {
  readonly open: readonly string[];
  /** Written for a time only and seldom, so that most are put back and not superseded before. */
  readonly quiet: readonly string[];
  readonly operatorOnly: readonly string[];
}

export const RANGE = { min: 0, max: 1000 };
export const LARGEST_PAYLOAD_BYTES = 16_384;
/** What the tags hold at first; no command writes it. */
export const FIRST_VALUE = 500.0005;

const TOPIC = "plenum/cmd/main/set";
const topicOf = (tag: string) => `plenum/cmd/main/${tag}/set`;

/** Messages of every kind, in the shares of a bad day. */
export function createMessages(options: {
  readonly random: SeededRandom;
  readonly tags: Tags;
  readonly now: () => number;
}) {
  const { random, tags, now } = options;
  const { chance, pick, below } = random;
  let serial = 0;

  /** A fixed walk through the range that repeats no value: 7919 and a million have no common factor. */
  function freshValue(): number {
    serial += 1;
    return ((serial * 7919) % 1_000_000) / 1000;
  }

  function unit(more: Partial<Unit> = {}): Unit {
    const value = more.value ?? freshValue();
    const ttlMs = pick([5, 10, 30, 60, 120, 300]) * 1000;
    return {
      id: `c${serial}`,
      tag: pick(tags.open),
      ttlMs,
      issuedAtMs: null,
      forMs: null,
      expect: null,
      ...more,
      value,
    };
  }

  function bodyOf({ id, tag, value, ttlMs, issuedAtMs, forMs, expect }: Unit): Readonly<Record<string, unknown>> {
    return {
      id,
      tag,
      value,
      ttl_s: ttlMs / 1000,
      ...(issuedAtMs === null ? {} : { issued_at: new Date(issuedAtMs).toISOString() }),
      ...(forMs === null ? {} : { for_s: forMs / 1000 }),
      ...(expect === null ? {} : { expect }),
    };
  }

  function message(one: Unit, more: Partial<Message> & { readonly body?: unknown } = {}): Message {
    const { body = bodyOf(one), kind = "lawful", ...changes } = more;
    return {
      kind,
      kindBy3: kind,
      topic: chance(0.3) ? topicOf(one.tag) : TOPIC,
      payload: Buffer.from(JSON.stringify(body)),
      retain: false,
      beside: null,
      units: [one],
      ...changes,
    };
  }

  /** Written back after a while. */
  function borrowed(one = unit()): Message {
    return message({ ...one, tag: pick(tags.quiet), forMs: 1000 * (20 + below(20)) });
  }

  function lawful(more: Partial<Unit> = {}): Message {
    const one = unit(more);
    if (chance(0.06)) return borrowed(one);
    if (chance(0.03)) return message({ ...one, expect: FIRST_VALUE });
    if (chance(0.1)) return message({ ...one, issuedAtMs: now() });
    if (chance(0.1)) {
      const responseTopic = `plenum/reply/campaign/${below(10)}`;
      return message(one, { beside: { responseTopic, correlationData: Buffer.from(one.id) } });
    }
    if (chance(0.05)) return message(one, { beside: { messageExpiryInterval: 1 + below(60) } });
    if (chance(0.05)) {
      const { id: _id, ...body } = bodyOf(one);
      return message(one, { body, kindBy3: "misshapen", beside: { userProperties: { id: one.id } } });
    }
    return message(one);
  }

  /** Up to 20 tags in one message, each a command of its own. */
  function group(): Message {
    const chosen = new Set(Array.from({ length: 2 + below(19) }, () => pick(tags.open)));
    const id = `g${serial}`;
    const units = [...chosen].map((tag) => unit({ id: `${id}/${tag}`, tag, ttlMs: 60_000 }));
    const writes = units.map(({ tag, value }) => ({ tag, value }));
    const payload = Buffer.from(JSON.stringify({ id, ttl_s: 60, writes }));
    const lawfully = { kind: "lawful", kindBy3: "lawful" } as const;
    return { ...lawfully, topic: TOPIC, payload, retain: false, beside: null, units };
  }

  function unlawful(): Message {
    const one = unit();
    const body = bodyOf(one);
    const kind = pick(UNLAWFUL);
    switch (kind) {
      case "retained":
        return message(one, { kind, topic: topicOf(one.tag), retain: true });
      case "stale": {
        const issued_at = new Date(now() - 400_000).toISOString();
        return message(one, { kind, body: { ...body, issued_at } });
      }
      case "future": {
        const issued_at = new Date(now() + 1_800_000).toISOString();
        return message(one, { kind, body: { ...body, issued_at } });
      }
      case "out-of-range": {
        const value = pick([-5e-324, 1000.0000000000001, 1e300, -1]);
        return message(one, { kind, body: { ...body, value } });
      }
      case "wrong-type":
        return message(one, { kind, body: { ...body, value: chance(0.5) } });
      case "unlisted": {
        const tag = `stranger-${below(100)}`;
        return message({ ...one, tag }, { kind, topic: TOPIC, body: { ...body, tag } });
      }
      case "not-from-here": {
        const tag = pick(tags.operatorOnly);
        return message({ ...one, tag }, { kind, topic: TOPIC, body: { ...body, tag } });
      }
      case "not-restorable":
        return message(one, { kind, body: { ...body, for_s: pick([0.5, 100_000]) } });
      case "malformed":
        return message(one, { kind, payload: mutate(JSON.stringify(body)) });
      case "misshapen": {
        const wrong = pick([{ value: "21" }, { value: null }, { for: 3 }, { ttl_s: -1 }, { source: "other" }]);
        return message(one, { kind, body: { ...body, ...wrong } });
      }
      case "oversized": {
        const payload = Buffer.from(JSON.stringify(body).padEnd(LARGEST_PAYLOAD_BYTES + 1 + below(20_000)));
        return message(one, { kind, payload });
      }
      default:
        return chance(0.5)
          ? message(one, { kind, body: { ...body, quality: "good" } })
          : message(one, { kind, kindBy3: "lawful", beside: { userProperties: { "plenum-event-id": "x" } } });
    }
  }

  /** Bytes are replaced at random. Without its first brace it is surely no command any more. */
  function mutate(text: string): Buffer {
    const bytes = Buffer.from(text).subarray(1);
    for (let n = 0; n < 3; n += 1) bytes[below(bytes.length)] = below(256);
    return bytes;
  }

  return {
    lawful,
    borrowed,
    next(): Message {
      if (chance(0.25)) return unlawful();
      return chance(0.05) ? group() : lawful();
    },
    flood(): readonly Message[] {
      const tag = pick(tags.open);
      return Array.from({ length: FLOOD }, () => lawful({ tag }));
    },
    /** Another value under an id that was used; lawful by itself. */
    underTheId({ units: [old] }: Message): Message {
      return message(unit(old === undefined ? {} : { id: old.id }));
    },
    stop(): Message {
      const one = unit();
      return message(one, { kind: "stop", topic: TOPIC, body: { id: one.id, stop: true } });
    },
  };
}

const UNLAWFUL = (Object.keys(REASONS) as (keyof typeof REASONS)[]).filter((kind) => kind !== "stop");

/** Three times as many as may be written to a tag in a minute, because a busy machine takes its time with them. */
const FLOOD = 60;

/** Bits of a mark: 16 million publishes. */
const MARK_BITS = 24;

/**
 * The payload with the number of its publish behind it, in blanks and tabs, which JSON does not mind: so each
 * publish is known on the wire, with MQTT 3.1.1 as with 5, and means the same as without.
 */
export function marked(payload: Buffer, serial: number): Buffer {
  const bits = serial.toString(2).padStart(MARK_BITS, "0");
  return Buffer.concat([payload, Buffer.from(bits.replaceAll("0", " ").replaceAll("1", "\t"))]);
}

export function serialOf(payload: Buffer): number {
  const blanks = payload.subarray(-MARK_BITS).toString("latin1");
  return Number.parseInt(blanks.replaceAll(" ", "0").replaceAll("\t", "1"), 2);
}
