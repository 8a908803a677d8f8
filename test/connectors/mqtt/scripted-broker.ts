import { once } from "node:events";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { parser as createParser, type Packet, writeToStream } from "mqtt-packet";
import { closeServer } from "./cutting-proxy.ts";

export type ScriptedBroker = Awaited<ReturnType<typeof startScriptedBroker>>;

export type RespondToPacket = (packet: Packet, socket: Socket) => readonly Packet[] | undefined;

export async function startScriptedBroker(protocolVersion: 4 | 5, replies: RespondToPacket, port = 0) {
  const came: Packet[] = [];
  const sockets = new Set<Socket>();
  const pendingChecks = new Set<() => void>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on("error", () => socket.destroy());
    const parser = createParser({ protocolVersion });
    parser.on("packet", (packet) => {
      came.push(packet);
      for (const replyPacket of replies(packet, socket) ?? defaultReply(packet, protocolVersion)) {
        if (socket.writable) writeToStream(replyPacket, socket, { protocolVersion });
      }
      for (const pendingCheck of pendingChecks) pendingCheck();
    });
    parser.on("error", () => socket.destroy());
    socket.on("data", (data) => parser.parse(data));
    socket.once("close", () => sockets.delete(socket));
  });
  server.listen(port, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `mqtt://127.0.0.1:${(server.address() as AddressInfo).port}`,
    came: came as readonly Packet[],
    until(cmd: Packet["cmd"], count = 1) {
      return new Promise<readonly Packet[]>((resolve) => {
        const checkPackets = () => {
          const foundPackets = came.filter((packet) => packet.cmd === cmd);
          if (foundPackets.length < count) return;
          pendingChecks.delete(checkPackets);
          resolve(foundPackets);
        };
        pendingChecks.add(checkPackets);
        checkPackets();
      });
    },
    send(packet: Packet) {
      for (const socket of sockets) writeToStream(packet, socket, { protocolVersion });
    },
    cut() {
      for (const socket of sockets) socket.destroy();
    },
    close: () => closeServer(server, sockets),
  };
}

function defaultReply(packet: Packet, protocolVersion: 4 | 5): readonly Packet[] {
  switch (packet.cmd) {
    case "connect":
      return [connack(protocolVersion, 0)];
    case "publish":
      return packet.qos === 1 ? [puback(packet)] : [];
    case "subscribe":
      return [{ cmd: "suback", messageId: packet.messageId ?? 0, granted: packet.subscriptions.map(() => 1) }];
    case "pingreq":
      return [{ cmd: "pingresp" }];
    default:
      return [];
  }
}

export const isValue = (packet: Packet) => packet.cmd === "publish" && packet.topic.endsWith("/value");

export const puback = ({ messageId = 0 }: Packet, reasonCode = 0): Packet => ({ cmd: "puback", messageId, reasonCode });

export function connack(protocolVersion: 4 | 5, code: number): Packet {
  const reason = protocolVersion === 5 ? { reasonCode: code } : { returnCode: code };
  return { cmd: "connack", sessionPresent: false, ...reason };
}
