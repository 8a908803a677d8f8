import type { SeededRandom } from "../seeded-random.ts";

export type Kind = "lawful" | keyof typeof REASONS;

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

export interface Message {
  readonly kind: Kind;
  readonly kindBy3: Kind;
  readonly topic: string;
  readonly payload: Buffer;
  readonly retain: boolean;
  readonly mqtt5Properties: Mqtt5Properties | null;
  readonly units: readonly Unit[];
}

export interface Mqtt5Properties {
  readonly userProperties?: Readonly<Record<string, string>>;
  readonly responseTopic?: string;
  readonly correlationData?: Buffer;
  readonly messageExpiryInterval?: number;
}

export interface Unit {
  readonly id: string;
  readonly tag: string;
  readonly value: number;
  readonly ttlMs: number;
  readonly issuedAtMs: number | null;
  readonly forMs: number | null;
  readonly expect: number | null;
}

export interface Tags {
  readonly open: readonly string[];
  readonly quiet: readonly string[];
  readonly operatorOnly: readonly string[];
}

export const RANGE = { min: 0, max: 1000 };
export const LARGEST_PAYLOAD_BYTES = 16_384;
/** No command writes this value. */
export const FIRST_VALUE = 500.0005;

const TOPIC = "plenum/cmd/main/set";
const topicOf = (tag: string) => `plenum/cmd/main/${tag}/set`;

export function createMessages(options: {
  readonly random: SeededRandom;
  readonly tags: Tags;
  readonly now: () => number;
}) {
  const { random, tags, now } = options;
  const { chance, pick, below } = random;
  let serial = 0;

  /** Repeats no value, because 7919 and a million have no common factor. */
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
      mqtt5Properties: null,
      units: [one],
      ...changes,
    };
  }

  function timedWrite(one = unit()): Message {
    return message({ ...one, tag: pick(tags.quiet), forMs: 1000 * (20 + below(20)) });
  }

  function lawfulWrite(more: Partial<Unit> = {}): Message {
    const one = unit(more);
    if (chance(0.06)) return timedWrite(one);
    if (chance(0.03)) return message({ ...one, expect: FIRST_VALUE });
    if (chance(0.1)) return message({ ...one, issuedAtMs: now() });
    if (chance(0.1)) {
      const responseTopic = `plenum/reply/campaign/${below(10)}`;
      return message(one, { mqtt5Properties: { responseTopic, correlationData: Buffer.from(one.id) } });
    }
    if (chance(0.05)) return message(one, { mqtt5Properties: { messageExpiryInterval: 1 + below(60) } });
    if (chance(0.05)) {
      const { id: _id, ...body } = bodyOf(one);
      return message(one, { body, kindBy3: "misshapen", mqtt5Properties: { userProperties: { id: one.id } } });
    }
    return message(one);
  }

  function group(): Message {
    const chosen = new Set(Array.from({ length: 2 + below(19) }, () => pick(tags.open)));
    const id = `g${serial}`;
    const units = [...chosen].map((tag) => unit({ id: `${id}/${tag}`, tag, ttlMs: 60_000 }));
    const writes = units.map(({ tag, value }) => ({ tag, value }));
    const payload = Buffer.from(JSON.stringify({ id, ttl_s: 60, writes }));
    const lawfully = { kind: "lawful", kindBy3: "lawful" } as const;
    return { ...lawfully, topic: TOPIC, payload, retain: false, mqtt5Properties: null, units };
  }

  function unlawfulWrite(): Message {
    const one = unit();
    const body = bodyOf(one);
    const isoIn = (ms: number) => new Date(now() + ms).toISOString();
    const withBody = (more: object) => ({ body: { ...body, ...more } });
    const toTag = (tag: string) =>
      [
        { ...one, tag },
        { topic: TOPIC, ...withBody({ tag }) },
      ] as const;
    const loop: Partial<Message> & { body?: unknown } = chance(0.5)
      ? withBody({ quality: "good" })
      : { kindBy3: "lawful" as const, mqtt5Properties: { userProperties: { "plenum-event-id": "x" } } };
    const shapes = [{ value: "21" }, { value: null }, { for: 3 }, { ttl_s: -1 }, { source: "other" }];
    const changes: Record<
      Exclude<Kind, "lawful" | "stop">,
      () => readonly [Unit, Partial<Message> & { body?: unknown }]
    > = {
      retained: () => [one, { topic: topicOf(one.tag), retain: true }],
      stale: () => [one, withBody({ issued_at: isoIn(-400_000) })],
      future: () => [one, withBody({ issued_at: isoIn(1_800_000) })],
      "out-of-range": () => [one, withBody({ value: pick([-5e-324, 1000.0000000000001, 1e300, -1]) })],
      "wrong-type": () => [one, withBody({ value: chance(0.5) })],
      unlisted: () => toTag(`stranger-${below(100)}`),
      "not-from-here": () => toTag(pick(tags.operatorOnly)),
      "not-restorable": () => [one, withBody({ for_s: pick([0.5, 100_000]) })],
      malformed: () => [one, { payload: damagedPayload(JSON.stringify(body)) }],
      misshapen: () => [one, withBody(pick(shapes))],
      oversized: () => [
        one,
        { payload: Buffer.from(JSON.stringify(body).padEnd(LARGEST_PAYLOAD_BYTES + 1 + below(20_000))) },
      ],
      loop: () => [one, loop],
    };
    const kind = pick(Object.keys(changes) as (keyof typeof changes)[]);
    const [sender, change] = changes[kind]();
    return message(sender, { kind, ...change });
  }

  function damagedPayload(text: string): Buffer {
    const bytes = Buffer.from(text).subarray(1);
    for (let n = 0; n < 3; n += 1) bytes[below(bytes.length)] = below(256);
    return bytes;
  }

  return {
    lawful: lawfulWrite,
    next(): Message {
      if (chance(0.25)) return unlawfulWrite();
      return chance(0.05) ? group() : lawfulWrite();
    },
    flood(): readonly Message[] {
      const tag = pick(tags.open);
      return Array.from({ length: FLOOD }, () => lawfulWrite({ tag }));
    },
    withSameId({ units: [old] }: Message): Message {
      return message(unit(old === undefined ? {} : { id: old.id }));
    },
    stop(): Message {
      const one = unit();
      return message(one, { kind: "stop", topic: TOPIC, body: { id: one.id, stop: true } });
    },
  };
}

const FLOOD = 60;

const MARK_BITS = 24;

/** Appends the publish number in blanks and tabs, which JSON ignores, so that the wire tap recognizes each publish. */
export function marked(payload: Buffer, serial: number): Buffer {
  const bits = serial.toString(2).padStart(MARK_BITS, "0");
  return Buffer.concat([payload, Buffer.from(bits.replaceAll("0", " ").replaceAll("1", "\t"))]);
}

export function serialOf(payload: Buffer): number {
  const blanks = payload.subarray(-MARK_BITS).toString("latin1");
  return Number.parseInt(blanks.replaceAll(" ", "0").replaceAll("\t", "1"), 2);
}
