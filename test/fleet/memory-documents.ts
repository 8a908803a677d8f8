import { Retryable } from "#src/core/errors/errors.ts";
import type { Query, QueryResult, Values } from "#src/core/postgres/session.ts";
import type { StateDatabase } from "#src/scale/postgres/state-database.ts";

/**
 * The table of a fleet's documents in memory, for tests that move the time and have the database away.
 * The real one is asked in `documents.test.ts`.
 */
export interface MemoryDocuments {
  /** A connection of its own, which can be away alone. */
  connect(): MemoryConnection;
  readonly bodies: Map<string, string>;
}

export interface MemoryConnection {
  readonly database: StateDatabase;
  /** `fails`: each call is refused at once. `stalls`: no call is ever answered. */
  state: "well" | "fails" | "stalls";
  /** Whether it is told what others write. */
  hears: boolean;
  asked: number;
}

export function createMemoryDocuments(): MemoryDocuments {
  const bodies = new Map<string, string>();
  const listeners = new Map<string, Set<{ of: MemoryConnection; call: () => void }>>();

  function run(text: string, values: Values = []): QueryResult {
    const [key = "", body = ""] = values.map(String);
    if (text.startsWith("notify")) {
      for (const { of, call } of listeners.get(key) ?? []) if (of.hears) call();
      return { command: "NOTIFY", rows: [] };
    }
    if (text.startsWith("select")) {
      const found = bodies.get(key);
      return { command: "SELECT", rows: found === undefined ? [] : [[found]] };
    }
    if (text.startsWith("insert")) {
      if (!text.includes("do nothing") || !bodies.has(key)) bodies.set(key, body);
      return { command: "INSERT", rows: [] };
    }
    const isThere = bodies.get(key) === body;
    if (isThere) bodies.delete(key);
    return { command: "DELETE", rows: isThere ? [[1]] : [] };
  }

  return {
    bodies,
    connect() {
      async function reached(): Promise<void> {
        connection.asked += 1;
        if (connection.state === "fails") throw new Retryable("The database is away.");
        if (connection.state === "stalls") return new Promise(() => {});
      }
      async function transact(asked: readonly Query[]): Promise<readonly QueryResult[]> {
        await reached();
        return asked.map(({ text, values }) => run(text, values));
      }
      const unused = async () => {
        await reached();
        throw new Error("nothing else is in memory");
      };
      const connection: MemoryConnection = {
        state: "well",
        hears: true,
        asked: 0,
        database: {
          name: "in memory",
          table: (name) => name,
          query: async (text, values) => {
            const [answer] = await transact([values === undefined ? { text } : { text, values }]);
            if (answer === undefined) throw new Error("no answer");
            return answer;
          },
          transact,
          work: unused,
          describe: unused,
          onNotified(topic, call) {
            const those = listeners.get(topic) ?? new Set();
            listeners.set(topic, those);
            const listener = { of: connection, call };
            those.add(listener);
            return () => void those.delete(listener);
          },
          notify: (topic) => ({ text: "notify", values: [topic] }),
          close: async () => undefined,
        },
      };
      return connection;
    },
  };
}
