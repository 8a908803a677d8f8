import { connect as connectPlain, isIP, type Socket } from "node:net";
import type { Writable } from "node:stream";
import { connect as connectSecure } from "node:tls";
import type { IClientOptions } from "mqtt";
import { VERIFIED_TLS } from "../../src/core/http/verified-tls.ts";
import { type Acknowledged, createAcknowledgements } from "./acknowledgements.ts";

export interface Listener {
  readonly acknowledged: Acknowledged;
  /** Something came, and what it acknowledges has been told. */
  readonly arrived: () => void;
}

export const NOBODY: Listener = { acknowledged: () => undefined, arrived: () => undefined };

/**
 * The connection that the library speaks over. It reads all that comes but for the acknowledgements, which are ours
 * (acknowledgements.ts); and no proxy of the environment stands in between.
 */
export function openSocket(options: IClientOptions, listener: Listener): Socket {
  const socket = options.protocol === "mqtts" ? secure(options) : connectPlain(whereOf(options));
  const acknowledgements = createAcknowledgements(listener.acknowledged);
  // Or our system holds a small packet back, a ping say, until the broker has confirmed the one before.
  socket.setNoDelay(true);
  const pipe = <T extends Writable>(library: T): T => {
    socket.on("data", (chunk: Buffer) => {
      const left = acknowledgements.read(chunk);
      listener.arrived();
      if (left !== null && !library.write(left)) socket.pause();
    });
    library.on("drain", () => socket.resume());
    socket.once("end", () => library.end());
    return library;
  };
  return Object.assign(socket, { pipe });
}

function whereOf({ host, port }: IClientOptions): { readonly host: string; readonly port: number } {
  return { host: String(host), port: Number(port) };
}

/** Whom the certificate does not fit gets nothing; the library hears of it as of any other error of the connection. */
function secure(options: IClientOptions): Socket {
  const { host, port } = whereOf(options);
  const { ca, cert, key, servername } = options;
  const name = servername ?? (isIP(host) === 0 ? host : undefined);
  return connectSecure({
    ...{ ...VERIFIED_TLS, host, port },
    ...(ca === undefined ? {} : { ca }),
    ...(cert === undefined ? {} : { cert }),
    ...(key === undefined ? {} : { key }),
    ...(name === undefined ? {} : { servername: name }),
  });
}
