import { once } from "node:events";
import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import { Reader, readRecordsBatch } from "@platformatic/kafka";

export type ScriptedCluster = Awaited<ReturnType<typeof startScriptedCluster>>;
type Batch = ReturnType<typeof decodeBatch>;

export interface Script {
  readonly brokers?: number;
  readonly topics?: number | Readonly<Record<string, number>>;
  /** Error code of Kafka, `silence`, `cut` or `late` (stored, then cut). */
  readonly produce?: (batch: Batch) => number | "silence" | "cut" | "late";
  readonly leaderless?: (topic: string, partition: number) => boolean;
  readonly producerId?: () => number;
  readonly epoch?: number;
  readonly topic?: (name: string) => number;
  readonly sasl?: { readonly mechanism: string; readonly reply: () => Buffer | "refused" };
  readonly host?: string;
}

const NAMES: Readonly<Record<number, string>> = {
  0: "Produce",
  3: "Metadata",
  17: "SaslHandshake",
  18: "ApiVersions",
  22: "InitProducerId",
  36: "SaslAuthenticate",
};
const UNSUPPORTED_VERSION = 35;

export async function startScriptedCluster(script: Script = {}) {
  const batches: Batch[] = [];
  const storedRecords: Batch["records"][number][] = [];
  const requestNames: string[] = [];
  const sockets: Set<Socket>[] = [];
  const servers: Server[] = [];
  let producerIds = 4_000n;

  function buildResponse(broker: number, api: number, version: number, body: Reader): Buffer | "silence" | "cut" {
    requestNames.push(NAMES[api] ?? String(api));
    switch (api) {
      case 18:
        if (version > 1) return bytes(int16(UNSUPPORTED_VERSION), encodeArray([]), int32(0));
        return bytes(
          int16(0),
          array(Object.entries(API_VERSIONS), ([key, v]) => bytes(int16(Number(key)), int16(v), int16(v))),
          int32(0),
        );
      case 3: {
        const count = body.readInt32();
        return metadata(count < 0 ? allTopics() : Array.from({ length: count }, () => body.readString(false)));
      }
      case 22: {
        const code = script.producerId?.() ?? 0;
        producerIds += 1n;
        return bytes(int32(0), int16(code), int64(producerIds), int16(script.epoch ?? 0));
      }
      case 0:
        return handleProduce(broker, body);
      case 17: {
        const mechanism = body.readString(false);
        const ownMechanism = script.sasl?.mechanism;
        const code = ownMechanism === undefined ? 34 : mechanism === ownMechanism ? 0 : 33;
        return bytes(int16(code), array(ownMechanism === undefined ? [] : [ownMechanism], string));
      }
      default: {
        const saslReply = script.sasl?.reply() ?? "refused";
        return saslReply === "refused"
          ? bytes(int16(58), string("Authentication failed"), int32(0))
          : bytes(int16(0), int16(-1), int32(saslReply.length), saslReply);
      }
    }
  }

  const allTopics = () => (typeof script.topics === "object" ? Object.keys(script.topics) : []);
  const countPartitions = (name: string) =>
    typeof script.topics === "object" ? (script.topics[name] ?? 0) : (script.topics ?? 3);

  function metadata(names: readonly string[]): Buffer {
    return bytes(
      array(servers, (server, n) =>
        bytes(int32(n), string(script.host ?? "127.0.0.1"), int32(getPort(server) ?? ports[n] ?? 0), int16(-1)),
      ),
      int32(0),
      array(names, (name) => {
        const count = countPartitions(name);
        const code = script.topic?.(name) ?? (count === 0 ? 3 : 0);
        return bytes(
          int16(code),
          string(name),
          Buffer.from([0]),
          array(code === 0 ? [...Array(count).keys()] : [], (partition) =>
            bytes(
              ...[int16(0), int32(partition)],
              int32(script.leaderless?.(name, partition) === true ? -1 : partition % servers.length),
              ...[encodeArray([]), encodeArray([])],
            ),
          ),
        );
      }),
    );
  }

  function handleProduce(broker: number, body: Reader): Buffer | "silence" | "cut" {
    body.readNullableString(false);
    body.readInt16();
    body.readInt32();
    let connectionEnd: "silence" | "cut" | null = null;
    const topicReplies = body.readArray(
      (r) => {
        const topic = r.readString(false);
        const partitions = r.readArray(
          (inner) => {
            const partition = inner.readInt32();
            const batch = decodeBatch(broker, topic, partition, inner.readBytes(false));
            batches.push(batch);
            const resultCode = script.produce?.(batch) ?? 0;
            if (resultCode === 0 || resultCode === "late") storedRecords.push(...batch.records);
            if (resultCode === "late") connectionEnd = "cut";
            else if (typeof resultCode === "string") connectionEnd = resultCode;
            const code = typeof resultCode === "number" ? resultCode : 0;
            return bytes(int32(partition), int16(code), int64(0n), int64(-1n));
          },
          false,
          false,
        );
        return bytes(string(topic), encodeArray(partitions));
      },
      false,
      false,
    );
    return connectionEnd ?? bytes(encodeArray(topicReplies), int32(0));
  }

  function serve(broker: number): Server {
    return createServer((socket) => {
      sockets[broker]?.add(socket);
      socket.on("error", () => socket.destroy());
      socket.once("close", () => sockets[broker]?.delete(socket));
      let isKnown = script.sasl === undefined;
      let unreadBytes: Buffer = Buffer.alloc(0);
      socket.on("data", (data: Buffer) => {
        unreadBytes = Buffer.concat([unreadBytes, data]);
        if (unreadBytes.length >= 4 && unreadBytes.readUInt32BE(0) > 100_000_000) return void socket.destroy();
        while (unreadBytes.length >= 4 && unreadBytes.length >= 4 + unreadBytes.readUInt32BE(0)) {
          const requestFrame = unreadBytes.subarray(4, 4 + unreadBytes.readUInt32BE(0));
          unreadBytes = unreadBytes.subarray(4 + requestFrame.length);
          const reader = Reader.from(requestFrame);
          const api = reader.readInt16();
          const version = reader.readInt16();
          const correlation = reader.readInt32();
          reader.readNullableString(false);
          if (!isKnown && ![17, 18, 36].includes(api)) return void socket.destroy();
          const responseBytes = buildResponse(broker, api, version, reader);
          if (responseBytes === "silence") return;
          if (responseBytes === "cut") return void socket.destroy();
          if (api === 36) isKnown = true;
          socket.write(bytes(int32(responseBytes.length + 4), int32(correlation), responseBytes));
        }
      });
    });
  }

  const ports: number[] = [];
  for (let n = 0; n < (script.brokers ?? 1); n++) {
    sockets.push(new Set());
    const server = serve(n).listen(0, "127.0.0.1");
    await once(server, "listening");
    servers.push(server);
    ports.push(getPort(server) ?? 0);
  }

  async function stopBroker(broker: number): Promise<void> {
    const server = servers[broker];
    if (server === undefined || !server.listening) return;
    const closed = once(server, "close");
    server.close();
    for (const socket of sockets[broker] ?? []) socket.destroy();
    await closed;
  }

  return {
    brokers: ports.map((port) => `127.0.0.1:${port}`),
    batches,
    stored: storedRecords,
    asked: requestNames,
    away: stopBroker,
    async back(broker: number) {
      const server = servers[broker];
      server?.listen(ports[broker], "127.0.0.1");
      if (server !== undefined) await once(server, "listening");
    },
    async close() {
      for (const broker of servers.keys()) await stopBroker(broker);
    },
  };
}

const API_VERSIONS: Readonly<Record<number, number>> = { 0: 3, 3: 1, 17: 1, 18: 1, 22: 0, 36: 0 };

function decodeBatch(broker: number, topic: string, partition: number, encoded: Buffer) {
  const { firstTimestamp, producerId, producerEpoch, firstSequence, records } = readRecordsBatch(Reader.from(encoded));
  return {
    ...{ broker, topic, partition, producerId, epoch: producerEpoch, sequence: firstSequence },
    records: records.map(({ key, value, headers, timestampDelta }) => ({
      ...{ topic, partition, timestampMs: Number(firstTimestamp + timestampDelta) },
      ...{ key: String(key), value: String(value) },
      headers: Object.fromEntries(headers.map(([name, text]) => [String(name), String(text)])) as Record<
        string,
        string
      >,
    })),
  };
}

const getPort = (server: Server) => (server.address() as AddressInfo | null)?.port;

const bytes = (...parts: readonly Buffer[]) => Buffer.concat(parts);

const int16 = (value: number): Buffer => Buffer.from([value >> 8, value]);
const int32 = (value: number): Buffer => bytes(int16(value >> 16), int16(value));
const int64 = (value: bigint): Buffer => bytes(int32(Number(value >> 32n)), int32(Number(BigInt.asIntN(32, value))));
const string = (text: string): Buffer => bytes(int16(Buffer.byteLength(text)), Buffer.from(text));

function array<T>(items: readonly T[], write: (item: T, n: number) => Buffer): Buffer {
  return bytes(int32(items.length), ...items.map(write));
}

const encodeArray = (parts: readonly Buffer[]) => array(parts, (part) => part);
