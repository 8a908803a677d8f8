import {
  Connection,
  type ConnectionOptions,
  findErrorBy,
  ResponseError,
  saslHandshakeV1,
} from "@platformatic/kafka";
import { ConfigError } from "../../src/core/errors/errors.ts";
import { probeServer, speaksTls } from "../../src/core/http/connection-problem.ts";
import type { Address } from "./config.ts";
import { brokerAt, speaksTlsOnly } from "./outcome.ts";

/** Longest wait for the answer to each question, in milliseconds: whoever hung up was quick to do so. */
const ASK_MS = 3_000;

/**
 * Why a broker hung up at our first question. It may be restarting, and then the same attempt goes well later; or we
 * stand at the wrong door, and then it never will: a listener that speaks TLS, or one that wants a password first, and
 * we have none. So TLS is tried, and a greeting with a way of authentication that does not exist, to which a listener
 * with passwords answers which ones it has. Nothing of ours is told. Null when that explains nothing.
 */
export async function whyHungUp(
  address: Address,
  { tls, sasl }: ConnectionOptions,
  signal: AbortSignal,
): Promise<ConfigError | null> {
  const farEnd = brokerAt(address);
  if (
    tls === undefined &&
    (await speaksTls((limit) => probeServer(address, AbortSignal.any([limit, signal]))))
  ) {
    return speaksTlsOnly(farEnd);
  }
  const ways = sasl === undefined && !signal.aborted ? await waysOfAuthentication(address, tls, signal) : [];
  if (ways.length === 0) return null;
  return new ConfigError(`${farEnd.name} wants a password (${ways.join(", ")}).`, {
    hint: "Set sasl, or another port in brokers.",
    reason: "unauthenticated",
    field: "sasl",
  });
}

async function waysOfAuthentication(
  { host, port }: Address,
  tls: ConnectionOptions["tls"],
  signal: AbortSignal,
): Promise<readonly string[]> {
  const connection = new Connection("plenum", {
    connectTimeout: ASK_MS,
    requestTimeout: ASK_MS,
    ...(tls === undefined ? {} : { tls }),
  });
  connection.on("error", () => undefined);
  const end = () => void connection.socket?.destroy(new Error("This wait was ended early."));
  signal.addEventListener("abort", end, { once: true });
  try {
    await connection.connect(host, port);
    const { mechanisms } = await saslHandshakeV1.api.async(connection, "NONE");
    return mechanisms;
  } catch (error) {
    if (!(error instanceof ResponseError) || !findErrorBy(error, "apiId", "UNSUPPORTED_SASL_MECHANISM"))
      return [];
    return (error.response as { readonly mechanisms: readonly string[] }).mechanisms;
  } finally {
    signal.removeEventListener("abort", end);
    connection.socket?.destroy();
  }
}
