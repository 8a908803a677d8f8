/** Number of packet identifiers, which have two bytes (MQTT 5.0, section 2.2.1). */
const PACKET_ID_COUNT = 65_536;
const MAX_EMPTY_SLOTS = 64;

/**
 * Unacknowledged messages in order of sending (MQTT 5.0, section 4.6). Uses less memory than a `Map`.
 *
 *     slots:  -  -  7  8  -  10           firstSlot = 2, endSlot = 6, messageCount = 3: 9 was acknowledged early
 */
export function createUnacknowledgedQueue<SentMessage extends { readonly id: number }>() {
  const isPacketIdUsed = new Uint8Array(PACKET_ID_COUNT);
  /** Slots of the queue. The array is never shortened, because growing the array again allocates memory. */
  const slots: (SentMessage | null)[] = [];
  let firstSlot = 0;
  let endSlot = 0;
  let messageCount = 0;

  function compactSlots(): void {
    let toSlot = 0;
    for (let fromSlot = firstSlot; fromSlot < endSlot; fromSlot += 1) {
      const sentMessage = slots[fromSlot] ?? null;
      if (sentMessage === null) continue;
      slots[fromSlot] = null;
      slots[toSlot] = sentMessage;
      toSlot += 1;
    }
    firstSlot = 0;
    endSlot = toSlot;
  }

  return {
    add(sentMessage: SentMessage): void {
      if (endSlot - messageCount > MAX_EMPTY_SLOTS) compactSlots();
      isPacketIdUsed[sentMessage.id] = 1;
      slots[endSlot] = sentMessage;
      endSlot += 1;
      messageCount += 1;
    },

    has: (id: number) => isPacketIdUsed[id] === 1,

    take(id: number): SentMessage | undefined {
      if (isPacketIdUsed[id] !== 1) return undefined;
      let index = firstSlot;
      while (slots[index]?.id !== id) index += 1;
      const sentMessage = slots[index] ?? undefined;
      isPacketIdUsed[id] = 0;
      slots[index] = null;
      messageCount -= 1;
      while (firstSlot < endSlot && slots[firstSlot] === null) firstSlot += 1;
      if (messageCount === 0) firstSlot = endSlot = 0;
      return sentMessage;
    },

    takeAll(): readonly SentMessage[] {
      const sentMessages = slots.slice(firstSlot, endSlot).filter((message) => message !== null);
      for (const { id } of sentMessages) isPacketIdUsed[id] = 0;
      slots.fill(null);
      firstSlot = endSlot = messageCount = 0;
      return sentMessages;
    },

    getOldest: () => slots[firstSlot] ?? undefined,

    size: () => messageCount,

    slotCount: () => slots.length,
  };
}

/**
 * Pings the broker when acknowledgements are late. Mosquitto (`set_tcp_nodelay false`) delays acknowledgements up to
 * 40 ms, until TCP confirms its last packet. A ping makes TCP confirm the packet:
 *
 *     20 messages ►   ◄ PUBACK   PINGREQ ►   ◄ 19 × PUBACK, PINGRESP
 */
export function createAcknowledgementFlush(hasPendingMessages: () => boolean, sendPing: () => void) {
  let isPingCheckPlanned = false;
  let hasSentSinceReceiving = false;
  /** True if a packet was sent or acknowledged since the last ping. Prevents endless pings. */
  let hasNewActivity = false;

  function pingIfNeeded(): void {
    isPingCheckPlanned = false;
    if (hasSentSinceReceiving || !hasNewActivity || !hasPendingMessages()) return;
    hasNewActivity = false;
    sendPing();
  }

  return {
    noteSent(): void {
      hasSentSinceReceiving = true;
      hasNewActivity = true;
    },
    noteAcknowledged(): void {
      hasNewActivity = true;
    },
    noteDataReceived(): void {
      hasSentSinceReceiving = false;
      if (isPingCheckPlanned || !hasPendingMessages()) return;
      isPingCheckPlanned = true;
      // Wait one tick of the event loop, because the next messages are sent in this tick.
      setImmediate(pingIfNeeded);
    },
  };
}
