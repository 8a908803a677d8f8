import { createRequire } from "node:module";

/**
 * mqtt-packet breaks the connection over a PUBACK whose reason is not on its list, which its users cannot set; mqtt hands it
 * on to nobody, so the package is found the way the library itself finds it. The standard has two reasons below 128
 * for one, 0 and 16, but brokers send others (mochi-mqtt says 1, "granted QoS 1"), and all of them mean that the
 * message was taken; above, a reason that nobody knows is still a refusal of one message, not of the connection.
 * So every reason gets through, and reasons.ts says what it means.
 */
export function preparePackets(): void {
  const require = createRequire(import.meta.resolve("mqtt"));
  const { MQTT5_PUBACK_PUBREC_CODES: known } = require("mqtt-packet/constants.js") as {
    MQTT5_PUBACK_PUBREC_CODES: Record<number, string>;
  };
  for (let reason = 0; reason < 256; reason += 1) known[reason] ??= `Reason ${reason}`;
}
