import { createRequire } from "node:module";

/**
 * Two things in mqtt-packet that its users cannot set; mqtt hands them on to nobody, so the package is found the way
 * the library itself finds it.
 *
 * It prepares a buffer for each of the 65,536 packet ids at the first packet: 66,000 objects and some 8 MB for the
 * life of the process, to save an allocation of two bytes per message. It is told not to.
 *
 * And it breaks the connection over a PUBACK whose reason is not on its list. The standard has two reasons below 128
 * for one, 0 and 16, but brokers send others (mochi-mqtt says 1, "granted QoS 1"), and all of them mean that the
 * message was taken; above, a reason that nobody knows is still a refusal of one message, not of the connection.
 * So every reason gets through, and reasons.ts says what it means.
 */
export function preparePackets(): void {
  const require = createRequire(import.meta.resolve("mqtt"));
  const { writeToStream } = require("mqtt-packet") as { writeToStream: { cacheNumbers: boolean } };
  writeToStream.cacheNumbers = false;
  const { MQTT5_PUBACK_PUBREC_CODES: known } = require("mqtt-packet/constants.js") as {
    MQTT5_PUBACK_PUBREC_CODES: Record<number, string>;
  };
  for (let reason = 0; reason < 256; reason += 1) known[reason] ??= `Reason ${reason}`;
}
