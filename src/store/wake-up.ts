/** Lets others wait for the next change. */
export interface WakeUp {
  ring(): void;
  /** Resolves at the next ring, or when the signal aborts. */
  heard(signal: AbortSignal): Promise<void>;
}

export function createWakeUp(): WakeUp {
  const waiting = new Set<() => void>();
  return {
    ring() {
      for (const wake of waiting) wake();
    },
    heard(signal) {
      return new Promise((resolve) => {
        const wake = () => {
          waiting.delete(wake);
          signal.removeEventListener("abort", wake);
          resolve();
        };
        if (signal.aborted) return resolve();
        waiting.add(wake);
        signal.addEventListener("abort", wake, { once: true });
      });
    },
  };
}
