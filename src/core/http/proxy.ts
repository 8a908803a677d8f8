import { addAbortListener } from "node:events";
import { request as plainRequest } from "node:http";
import { request as secureRequest } from "node:https";
import { isIP, type Socket } from "node:net";
import type { buildConnector } from "undici";
import { z } from "zod";
import type { Clock } from "../runtime/clock.ts";
import { type ProcessEnv, readCertificateFile, SecretRef, secretReader } from "../runtime/secret.ts";
import { USER_AGENT } from "../runtime/version.ts";
import { checkedText } from "../values/checked-text.ts";
import {
  connectionFailure,
  HTTP_SCHEMES,
  probeTlsHandshake,
  proxyTunnelFailure,
  type ServerInfo,
} from "./connection-problem.ts";
import { isLoopbackHost } from "./loopback.ts";
import { VERIFIED_TLS } from "./verified-tls.ts";

function findProxyUrlProblem(text: string): string | null {
  const url = URL.parse(text);
  if (url === null || !/^https?:$/.test(url.protocol))
    return "Write the address of the proxy as http://host:port or https://host:port.";
  if (url.username !== "" || url.password !== "")
    return "Take the user name and password out of the address; they go under `username` and `password`.";
  if (url.pathname === "/" && url.search === "" && url.hash === "") return null;
  return "The address must end with the port: no path, no `?` and no `#`.";
}

export const ProxyConfig = z
  .strictObject({
    url: checkedText(findProxyUrlProblem).meta({
      description: "Address of an HTTP proxy; with https:// the connection to the proxy is encrypted too.",
      examples: ["http://proxy.example.com:3128"],
    }),
    username: z
      .string()
      .regex(/^[^:\p{Cc}]{1,255}$/u, "A user name has neither `:` nor control characters.")
      .optional()
      .meta({ description: "User name for the proxy (Basic), with password." }),
    password: SecretRef.optional().meta({ description: "Password for the proxy (Basic), with username." }),
    allow_plain_http: z.boolean().default(false).meta({
      description: "Allow the password over http:// to a proxy on another machine, where others can read it.",
    }),
    ca_file: z.string().min(1).optional().meta({
      description:
        "PEM file of the private authority of an https:// proxy, instead of the public ones. For the server's own authority see the option next to `proxy`.",
    }),
  })
  .superRefine((config, context) => {
    const addIssue = (path: string, message: string) => context.addIssue({ code: "custom", path: [path], message });
    if ((config.username === undefined) !== (config.password === undefined))
      addIssue("username", "Give username and password together.");
    const url = URL.parse(config.url);
    const isUnencryptedRemoteUrl = url?.protocol === "http:" && !isLoopbackHost(url.hostname);
    if (isUnencryptedRemoteUrl && config.password !== undefined && !config.allow_plain_http)
      addIssue("url", "A password needs https://; set allow_plain_http: true to send it readable anyway.");
  })
  .meta({ description: "HTTP proxy for this connection. Without it no proxy is used, whatever the environment says." });
export type ProxyConfig = z.infer<typeof ProxyConfig>;

export interface HostAndPort {
  readonly host: string;
  readonly port: number;
}

export function hostAndPortOfUrl(url: Pick<URL, "hostname" | "port" | "protocol">): HostAndPort {
  return { host: url.hostname, port: Number(url.port) || (url.protocol === "https:" ? 443 : 80) };
}

export type HttpProxy = NonNullable<ReturnType<typeof openProxy>>;

/** Opens tunnels by CONNECT, also for http://, so that no request contains credentials of both proxy and target. */
export function openProxy(config: ProxyConfig | undefined, clock: Pick<Clock, "monotonic">, environment?: ProcessEnv) {
  if (config === undefined) return null;
  const url = new URL(config.url);
  const isHttpsProxy = url.protocol === "https:";
  const proxyHost = stripIpv6Brackets(url.hostname);
  const proxyInfo: ServerInfo = {
    name: `The proxy ${url.origin}`,
    failureText: "could not be reached",
    addressOption: "proxy.url",
    caOption: "proxy.ca_file",
    ...HTTP_SCHEMES,
  };
  const { username, password, ca_file } = config;
  const readProxyPassword = password === undefined ? null : secretReader(password, clock, environment);
  function buildCredentialHeaders(): Record<string, string> {
    if (readProxyPassword === null) return {};
    const basicCredentialText = Buffer.from(`${username}:${readProxyPassword().reveal()}`).toString("base64");
    return { "proxy-authorization": `Basic ${basicCredentialText}` };
  }

  function createConnectRequest(authority: string) {
    const connectRequestOptions = {
      method: "CONNECT",
      host: proxyHost,
      port: url.port || (isHttpsProxy ? 443 : 80),
      path: authority,
      headers: { host: authority, "user-agent": USER_AGENT, ...buildCredentialHeaders() },
      // The global agent of Node.js may use a proxy from environment variables.
      agent: false,
    };
    if (!isHttpsProxy) return plainRequest(connectRequestOptions);
    return secureRequest({
      ...connectRequestOptions,
      ...VERIFIED_TLS,
      // By default, Node.js would compare the proxy's certificate with the Host header.
      servername: isIP(proxyHost) === 0 ? proxyHost : "",
      ...(ca_file === undefined ? {} : { ca: readCertificateFile(ca_file, "proxy.ca_file") }),
    });
  }
  return {
    async connectTo(target: HostAndPort, signal: AbortSignal): Promise<Socket> {
      signal.throwIfAborted();
      const targetAuthority = formatHostAndPort(target);
      const connectRequest = createConnectRequest(targetAuthority);
      using _abortListener = addAbortListener(signal, () => connectRequest.destroy(signal.reason));
      return await new Promise<Socket>((resolve, reject) => {
        connectRequest.on("error", (error) => reject(connectionFailure(error, proxyInfo)));
        connectRequest.once("connect", ({ statusCode = 0, headers }, socket, head) => {
          // Prevents an unhandled error before the caller adds its own listener.
          socket.on("error", () => undefined);
          const authSchemes = String(headers["proxy-authenticate"] ?? "");
          const tunnelResponse = { status: statusCode, authSchemes, hasExtraBytes: head.length > 0 };
          const failure = proxyTunnelFailure(tunnelResponse, proxyInfo, targetAuthority, readProxyPassword !== null);
          if (failure === null) return resolve(socket.setNoDelay(true).setKeepAlive(true, 60_000));
          socket.destroy();
          reject(failure);
        });
        connectRequest.end();
      });
    },
  };
}

/** Makes a connector of undici connect through the proxy, if there is one. */
export function connectThroughProxy(
  proxy: HttpProxy | null,
  connect: buildConnector.connector,
  timeoutMs: number,
): buildConnector.connector {
  if (proxy === null) return connect;
  return (target, done) => {
    proxy.connectTo(hostAndPortOfUrl(target), AbortSignal.timeout(timeoutMs)).then(
      // Without TLS, return the tunnel's socket itself: undici uses `httpSocket` only to start TLS.
      (socket) =>
        target.protocol === "https:" ? connect({ ...target, httpSocket: socket }, done) : done(null, socket),
      (error: Error) => done(error, null),
    );
  };
}

export async function probeTlsThroughProxy(proxy: HttpProxy | null, address: HostAndPort, signal: AbortSignal) {
  return probeTlsHandshake(address, signal, proxy === null ? null : await proxy.connectTo(address, signal));
}

function formatHostAndPort({ host, port }: HostAndPort): string {
  const hostName = stripIpv6Brackets(host);
  return `${isIP(hostName) === 6 ? `[${hostName}]` : hostName}:${port}`;
}

function stripIpv6Brackets(host: string): string {
  return host.replace(/^\[|\]$/g, "");
}
