export function createWaiter() {
  const sleepers = new Set<() => void>();
  return {
    ring: () => {
      for (const wake of sleepers) wake();
    },
    until: async (holds: () => Promise<boolean>, what: string, withinMs = 60_000): Promise<void> => {
      const until = performance.now() + withinMs;
      while (!(await holds())) {
        if (performance.now() > until) throw new Error(`In ${withinMs / 1000} s it did not happen that ${what}.`);
        await new Promise<void>((resolve) => {
          const wake = () => {
            clearTimeout(timer);
            sleepers.delete(wake);
            resolve();
          };
          const timer = setTimeout(wake, 50);
          sleepers.add(wake);
        });
      }
    },
  };
}
