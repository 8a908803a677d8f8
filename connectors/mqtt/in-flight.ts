/**
 * What waits for its acknowledgement, in the order of sending, which is the order in which a broker answers (MQTT 5.0,
 * section 4.6):
 *
 *     slots:  -  -  7  8  -  10           begin = 2, end = 6, size = 3: 9 was answered before its turn
 *
 * A `Map` would do, but for the collector. It makes itself a new table for every dozen of messages that come and go, and
 * V8 links each table to the next: a single one that has become old keeps all later ones alive, and with them every
 * message, its event and its batch. At 20 sources a sixth of all that became old was kept so (test/let-go.test.ts).
 */
interface InFlight<Sent extends { readonly id: number }> {
  add(sent: Sent): void;
  has(id: number): boolean;
  /** Takes one out; undefined when it is not there. */
  take(id: number): Sent | undefined;
  takeAll(): readonly Sent[];
  oldest(): Sent | undefined;
  size(): number;
  /** How many it has room for: what was most at once, and some holes. */
  slots(): number;
}

/** Packet identifiers have two bytes (MQTT 5.0, section 2.2.1). */
const IDS = 65_536;
/** A message that is never answered holds its slot; those that came and went behind it are closed up now and then. */
const MAX_HOLES = 64;

export function createInFlight<Sent extends { readonly id: number }>(): InFlight<Sent> {
  const isUsed = new Uint8Array(IDS);
  /** Never shortened: what grows again in every burst would leave its old selves behind. */
  const slots: (Sent | null)[] = [];
  let begin = 0;
  let end = 0;
  let size = 0;

  function indexOf(id: number): number {
    let index = begin;
    while (slots[index]?.id !== id) index += 1;
    return index;
  }

  function empty(): void {
    begin = 0;
    end = 0;
    size = 0;
  }

  function closeUp(): void {
    let to = 0;
    for (let from = begin; from < end; from += 1) {
      const sent = slots[from] ?? null;
      if (sent === null) continue;
      slots[from] = null;
      slots[to] = sent;
      to += 1;
    }
    begin = 0;
    end = to;
  }

  return {
    add(sent) {
      // The holes before the first are holes as well.
      if (end - size > MAX_HOLES) closeUp();
      isUsed[sent.id] = 1;
      slots[end] = sent;
      end += 1;
      size += 1;
    },

    has: (id) => isUsed[id] === 1,

    take(id) {
      if (isUsed[id] !== 1) return undefined;
      const index = indexOf(id);
      const sent = slots[index] ?? undefined;
      isUsed[id] = 0;
      slots[index] = null;
      size -= 1;
      if (size === 0) empty();
      else while (slots[begin] === null) begin += 1;
      return sent;
    },

    takeAll() {
      const all = slots.slice(begin, end).filter((sent) => sent !== null);
      for (const { id } of all) isUsed[id] = 0;
      slots.fill(null);
      empty();
      return all;
    },

    oldest: () => slots[begin] ?? undefined,

    size: () => size,

    slots: () => slots.length,
  };
}

/**
 * Fetches acknowledgements that a broker holds back. Mosquitto as it comes (`set_tcp_nodelay false`) sends one, and keeps
 * the next ones until our system has confirmed it; and a system confirms up to 40 ms late what it has nothing to send
 * along with. So the last 20 of 100 messages would take 40 ms, and the others 1 ms: 2,300 a second at most. A ping of two
 * bytes takes the confirmation along:
 *
 *     20 messages ►   ◄ PUBACK   PINGREQ ►   ◄ 19 × PUBACK, PINGRESP
 *
 * The answer to a ping is held back in the same way, and what was sent after it with it, so it counts as an arrival.
 */
interface AcknowledgementFlush {
  sent(): void;
  acknowledged(): void;
  /** Something came from the broker, and was read. */
  arrived(): void;
}

interface FlushOptions {
  /** Whether an acknowledgement is missing. */
  readonly isWaiting: () => boolean;
  readonly ping: () => void;
}

export function createAcknowledgementFlush({ isWaiting, ping }: FlushOptions): AcknowledgementFlush {
  let isPlanned = false;
  /** Since the last arrival, which was confirmed along with it. */
  let hasSent = false;
  /** Since the last ping. A broker that answers pings and nothing else would be pinged on and on. */
  let isNew = false;

  function decide(): void {
    isPlanned = false;
    if (hasSent || !isNew || !isWaiting()) return;
    isNew = false;
    ping();
  }

  return {
    sent() {
      hasSent = true;
      isNew = true;
    },
    acknowledged() {
      isNew = true;
    },
    arrived() {
      hasSent = false;
      if (isPlanned || !isWaiting()) return;
      isPlanned = true;
      // What an acknowledgement makes room for leaves within this turn of the event loop.
      setImmediate(decide);
    },
  };
}
