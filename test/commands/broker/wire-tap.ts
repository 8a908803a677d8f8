import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { type Packet, parser } from "mqtt-packet";
import { closeServer } from "../../connectors/mqtt/cutting-proxy.ts";
import { serialOf } from "./messages.ts";

export interface Delivery {
  readonly serial: number;
  readonly connection: Connection;
  readonly retained: boolean;
  readonly atMs: number;
  acknowledgedAtMs: number | null;
}

export interface Connection {
  readonly run: number;
  readonly protocol: number;
  readonly connectedAfter: number;
  subscribedAfter: number | null;
  handled: number;
  isOpen: boolean;
}

interface TapListener {
  readonly now: () => number;
  readonly run: () => number;
  readonly lastSerial: () => number;
  delivered(delivery: Delivery): void;
  acknowledged(delivery: Delivery): void;
  changed(): void;
}

/** Proxy between worker and broker that records which commands were delivered and acknowledged. */
export async function startWireTap(broker: () => number, listener: TapListener) {
  const deliveries: Delivery[] = [];
  const connections: Connection[] = [];
  const sockets = new Set<Socket>();
  const server = createServer((worker) => {
    const toBroker = connect(broker(), "127.0.0.1");
    let tapped: Tapped | null = null;
    const end = () => {
      worker.destroy();
      toBroker.destroy();
      tapped?.end();
    };
    for (const socket of [worker, toBroker]) {
      sockets.add(socket);
      socket.on("error", end);
      socket.on("close", end);
      socket.once("close", () => sockets.delete(socket));
    }
    const fromWorker = parser();
    fromWorker.on("error", () => undefined);
    fromWorker.on("packet", (packet: Packet) => {
      if (packet.cmd === "connect" && packet.clientId.endsWith("-cmd")) {
        tapped = tap(packet.protocolVersion ?? 4, deliveries, listener);
        connections.push(tapped.connection);
      }
      if (packet.cmd === "puback") tapped?.acknowledge(packet.messageId ?? 0);
    });
    worker.on("data", (data: Buffer) => {
      fromWorker.parse(data);
      toBroker.write(data);
    });
    toBroker.on("data", (data: Buffer) => {
      tapped?.fromBroker(data);
      worker.write(data);
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const ear = () => connections.findLast(({ isOpen, subscribedAfter }) => isOpen && subscribedAfter !== null);
  return {
    port: (server.address() as AddressInfo).port,
    deliveries: deliveries as readonly Delivery[],
    connections: connections as readonly Connection[],
    hears: () => ear() !== undefined,
    handled(): number | null {
      const at = ear();
      return at === undefined ? null : Math.max(at.handled, at.subscribedAfter ?? 0);
    },
    cut(): void {
      for (const socket of sockets) socket.destroy();
    },
    close: () => closeServer(server, sockets),
  };
}

type Tapped = ReturnType<typeof tap>;

const SUBSCRIPTIONS = 2;

function tap(protocolVersion: number, deliveries: Delivery[], listener: TapListener) {
  const connection: Connection = {
    run: listener.run(),
    protocol: protocolVersion,
    connectedAfter: listener.lastSerial(),
    subscribedAfter: null,
    handled: 0,
    isOpen: true,
  };
  const pending = new Map<number, Delivery>();
  let granted = 0;
  const fromBroker = parser({ protocolVersion });
  fromBroker.on("packet", (packet: Packet) => {
    if (packet.cmd === "suback") {
      granted += 1;
      if (granted === SUBSCRIPTIONS) connection.subscribedAfter = listener.lastSerial();
      listener.changed();
    }
    if (packet.cmd !== "publish") return;
    const delivery: Delivery = {
      serial: serialOf(Buffer.from(packet.payload)),
      connection,
      retained: packet.retain,
      atMs: listener.now(),
      acknowledgedAtMs: null,
    };
    deliveries.push(delivery);
    pending.set(packet.messageId ?? 0, delivery);
    listener.delivered(delivery);
  });
  return {
    connection,
    fromBroker: (data: Buffer) => void fromBroker.parse(data),
    acknowledge(packetId: number): void {
      const delivery = pending.get(packetId);
      if (delivery === undefined) return;
      pending.delete(packetId);
      delivery.acknowledgedAtMs = listener.now();
      connection.handled = Math.max(connection.handled, delivery.serial);
      listener.acknowledged(delivery);
      listener.changed();
    },
    end(): void {
      connection.isOpen = false;
      listener.changed();
    },
  };
}
