/** Number of packet identifiers, which have two bytes (MQTT 5.0, section 2.2.1). */
const PACKET_ID_COUNT = 65_536;
/** Number of empty slots above which the queue is compacted. */
const MAX_EMPTY_SLOTS = 64;

/**
 * Unacknowledged messages in order of sending (MQTT 5.0, section 4.6). Uses less memory than a `Map`.
 *
 *     slots:  -  -  7  8  -  10           begin = 2, end = 6, size = 3: 9 was acknowledged early
 */
export function createInFlightQueue<Sent extends { readonly id: number }>() {
  const isUsed = new Uint8Array(PACKET_ID_COUNT);
  /** Slots of the queue. Never shortened, because growing the array again allocates memory. */
  const slots: (Sent | null)[] = [];
  let begin = 0;
  let end = 0;
  let size = 0;

  function compact(): void {
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
    add(sent: Sent): void {
      if (end - size > MAX_EMPTY_SLOTS) compact();
      isUsed[sent.id] = 1;
      slots[end] = sent;
      end += 1;
      size += 1;
    },

    has: (id: number) => isUsed[id] === 1,

    take(id: number): Sent | undefined {
      if (isUsed[id] !== 1) return undefined;
      let index = begin;
      while (slots[index]?.id !== id) index += 1;
      const sent = slots[index] ?? undefined;
      isUsed[id] = 0;
      slots[index] = null;
      size -= 1;
      while (begin < end && slots[begin] === null) begin += 1;
      if (size === 0) begin = end = 0;
      return sent;
    },

    takeAll(): readonly Sent[] {
      const all = slots.slice(begin, end).filter((sent) => sent !== null);
      for (const { id } of all) isUsed[id] = 0;
      slots.fill(null);
      begin = end = size = 0;
      return all;
    },

    oldest: () => slots[begin] ?? undefined,

    size: () => size,

    slots: () => slots.length,
  };
}

/**
 * Mosquitto (`set_tcp_nodelay false`) holds acknowledgements up to 40 ms until TCP confirms the last packet. A ping confirms it:
 *
 *     20 messages ►   ◄ PUBACK   PINGREQ ►   ◄ 19 × PUBACK, PINGRESP
 */
export function createAcknowledgementFlush(isWaiting: () => boolean, ping: () => void) {
  let isCheckPlanned = false;
  let hasSent = false;
  /** True if a packet was sent or acknowledged since the last ping. Prevents endless pings. */
  let hasNewActivity = false;

  function pingIfNeeded(): void {
    isCheckPlanned = false;
    if (hasSent || !hasNewActivity || !isWaiting()) return;
    hasNewActivity = false;
    ping();
  }

  return {
    sent(): void {
      hasSent = true;
      hasNewActivity = true;
    },
    acknowledged(): void {
      hasNewActivity = true;
    },
    arrived(): void {
      hasSent = false;
      if (isCheckPlanned || !isWaiting()) return;
      isCheckPlanned = true;
      // Wait one tick of the event loop, in which the next messages are sent.
      setImmediate(pingIfNeeded);
    },
  };
}
