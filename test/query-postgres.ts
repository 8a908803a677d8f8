import { Client } from "pg";
import type { RealServer } from "./real-servers.ts";

export async function connectTo(server: Pick<RealServer, "port">, database = "postgres"): Promise<Client> {
  const client = new Client({ host: "127.0.0.1", port: server.port, database, user: "postgres" });
  client.on("error", () => undefined);
  await client.connect();
  return client;
}

/** Returns the rows of the last statement as lists. */
export async function queryPostgres(
  server: Pick<RealServer, "port">,
  database: string,
  text: string,
  values: readonly unknown[] = [],
): Promise<readonly (readonly unknown[])[]> {
  const client = await connectTo(server, database);
  try {
    const result = await client.query({ text, rowMode: "array", ...(values.length > 0 && { values: [...values] }) });
    const last = Array.isArray(result) ? result.at(-1) : result;
    return last.rows as unknown[][];
  } finally {
    await client.end();
  }
}
