import { type ChildProcess, fork } from "node:child_process";
import { join } from "node:path";

/** A process of the harness that responds to requests by name. */
export interface Child {
  request<T>(question: string, ...values: readonly unknown[]): Promise<T>;
  end(): Promise<void>;
}

interface Question {
  readonly number: number;
  readonly name: string;
  readonly values: readonly unknown[];
}

interface Reply {
  readonly number: number;
  readonly result?: unknown;
  readonly error?: string;
}

export function startChild(file: string, options: object): Child {
  const child: ChildProcess = fork(join(import.meta.dirname, file), [JSON.stringify(options)], {
    execArgv: [],
    serialization: "advanced",
  });
  const waiting = new Map<number, { resolve(result: unknown): void; reject(error: Error): void }>();
  const ended = new Promise<void>((resolve) => child.once("exit", () => resolve()));
  let number = 0;
  child.on("message", (reply: Reply) => {
    const asked = waiting.get(reply.number);
    waiting.delete(reply.number);
    if (reply.error === undefined) asked?.resolve(reply.result);
    else asked?.reject(new Error(`${file}: ${reply.error}`));
  });
  void ended.then(() => {
    for (const asked of waiting.values()) asked.reject(new Error(`${file} has ended.`));
  });
  return {
    request<T>(name: string, ...values: readonly unknown[]) {
      number += 1;
      const question: Question = { number, name, values };
      return new Promise<T>((resolve, reject) => {
        waiting.set(question.number, { resolve: (result) => resolve(result as T), reject });
        child.send(question);
      });
    },
    async end() {
      child.kill("SIGKILL");
      await ended;
    },
  };
}

export function childOptions<T>(): T {
  return JSON.parse(process.argv[2] ?? "{}") as T;
}

export function serve(handlers: Readonly<Record<string, (...values: readonly never[]) => unknown>>): void {
  process.on("message", ({ number, name, values }: Question) => {
    const handler = handlers[name];
    const run = async () => {
      if (handler === undefined) throw new Error(`The request ${name} has no handler.`);
      return handler(...(values as never[]));
    };
    run().then(
      (result) => process.send?.({ number, result } satisfies Reply),
      (error: unknown) => process.send?.({ number, error: String(error) } satisfies Reply),
    );
  });
  process.on("disconnect", () => process.exit());
}
