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
export interface Nudge {
  sent(): void;
  acknowledged(): void;
  /** Something came from the broker, and was read. */
  arrived(): void;
}

export interface NudgeOptions {
  /** Whether an acknowledgement is missing. */
  readonly isWaiting: () => boolean;
  readonly ping: () => void;
}

export function createNudge({ isWaiting, ping }: NudgeOptions): Nudge {
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
