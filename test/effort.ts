const MEASURED_MICROS = 100_000;

/** Processor time of `run` as a multiple of what a fixed computation takes in the same process. */
export async function effortOf(run: () => unknown): Promise<number> {
  const micros = referenceMicros();
  const before = process.threadCpuUsage();
  await run();
  return microsSince(before) / micros;
}

function referenceMicros(): number {
  const before = process.threadCpuUsage();
  let times = 0;
  while (microsSince(before) < MEASURED_MICROS) {
    const numbers = Array.from({ length: 10_000 }, (_, n) => (n * 7_919) % 10_007);
    if (numbers.join(",").split(",").toSorted().length > 0) times += 1;
  }
  return microsSince(before) / times;
}

function microsSince(before: NodeJS.CpuUsage): number {
  const { user, system } = process.threadCpuUsage(before);
  return user + system;
}

/** Ticks of a 100 ms timer of this process until `work` settles: a process that gets no processor has no ticks. */
export async function ticksUntil(work: Promise<unknown>): Promise<number> {
  let ticks = 0;
  const timer = setInterval(() => {
    ticks += 1;
  }, 100);
  try {
    await work;
  } finally {
    clearInterval(timer);
  }
  return ticks;
}
