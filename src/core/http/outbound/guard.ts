import type { LookupAddress, LookupOptions } from "node:dns";
import { isIP, type LookupFunction } from "node:net";
import type { TLSSocket } from "node:tls";
import { buildConnector } from "undici";
import { ConfigError, Retryable } from "../../errors/errors.ts";
import { isLoopbackHost } from "../loopback.ts";
import { connectThroughProxy, type HttpProxy } from "../proxy.ts";
import { VERIFIED_TLS } from "../verified-tls.ts";
import { createIpNetworkRules } from "./ip-network-ranges.ts";

export type DnsLookup = (
  host: string,
  options: LookupOptions & { all: true },
  done: (error: NodeJS.ErrnoException | null, addresses: LookupAddress[]) => void,
) => void;

/** Connects only to public or allowed addresses. Checks each DNS lookup, as protection against DNS rebinding. */
export function createGuardedConnector(options: {
  readonly url: URL;
  readonly allowNetworks: readonly string[];
  readonly ca: string | undefined;
  readonly timeoutMs: number;
  readonly lookup: DnsLookup;
  readonly proxy: HttpProxy | null;
}): buildConnector.connector {
  const networkRules = createIpNetworkRules(options.allowNetworks);
  const isHttpsTarget = options.url.protocol === "https:";
  function checkIpAddress(address: string): ConfigError | null {
    if (!networkRules.isPublicOrAllowed(address)) {
      return new ConfigError(`${options.url.origin} leads to ${address}, which is not a public address.`, {
        field: "url",
        hint: "If that is meant, add its network to allow_networks.",
      });
    }
    if (!isHttpsTarget && !networkRules.isAllowed(address)) {
      return new ConfigError(`${options.url.origin} is not encrypted.`, {
        field: "url",
        hint: "Use https, or add the network of the receiver to allow_networks.",
      });
    }
    return null;
  }
  const guardedDnsLookup: LookupFunction = (host, lookupOptions, done) => {
    options.lookup(host, { ...lookupOptions, all: true }, (error, addresses) => {
      const firstHostAddress = addresses?.[0];
      if (error !== null || firstHostAddress === undefined) return done(createUnknownHostError(host, error), "", 0);
      const addressRefusal = addresses
        .map(({ address }) => checkIpAddress(address))
        .find((refusal) => refusal !== null);
      if (addressRefusal !== undefined) done(addressRefusal, "", 0);
      else if (lookupOptions.all === true) done(null, addresses);
      else done(null, firstHostAddress.address, firstHostAddress.family);
    });
  };
  const guardedConnector = buildConnector({
    ...VERIFIED_TLS,
    timeout: options.timeoutMs,
    allowH2: false,
    lookup: guardedDnsLookup,
    ...(options.ca === undefined ? {} : { ca: options.ca }),
  });
  const connectToTarget = connectThroughProxy(options.proxy, guardedConnector, options.timeoutMs);
  return (target, done) => {
    // The DNS lookup, which checks addresses, is not called for an IP address in the URL.
    const host = target.hostname.replace(/^\[|\]$/g, "");
    const targetAddress = options.proxy !== null && isLoopbackHost(host.replace(/\.$/, "")) ? "127.0.0.1" : host;
    const addressRefusal = isIP(targetAddress) === 0 ? null : checkIpAddress(targetAddress);
    if (addressRefusal !== null) done(addressRefusal, null);
    else connectToTarget(target, done);
  };
}

export function testConnection(
  connect: buildConnector.connector,
  url: Pick<URL, "hostname" | "host" | "protocol" | "port">,
  signal: AbortSignal,
): Promise<void> {
  return new Promise((resolve, reject) => {
    signal.throwIfAborted();
    const rejectWithAbortReason = () => reject(signal.reason);
    signal.addEventListener("abort", rejectWithAbortReason, { once: true });
    const connectTarget = { hostname: url.hostname, host: url.host, protocol: url.protocol, port: url.port };
    connect(connectTarget, (...[error, socket]: [Error, null] | [null, TLSSocket | { destroy(): unknown }]) => {
      signal.removeEventListener("abort", rejectWithAbortReason);
      if (error !== null) return reject(error);
      socket.destroy();
      resolve();
    });
  });
}

function createUnknownHostError(host: string, cause: NodeJS.ErrnoException | null): Error {
  return new Retryable(`The name ${host} could not be resolved (${cause?.code ?? "no address"}).`, {
    hint: "Check the address and the name server.",
    cause,
  });
}
