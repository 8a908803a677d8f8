import { createRequire } from "node:module";

/**
 * mqtt-packet prepares a buffer for each of the 65,536 packet ids at the first packet: 66,000 objects and some 8 MB
 * for the life of the process, to save an allocation of two bytes per message. It can be told not to; the library
 * that we import hands that switch on to nobody, so it is found the way the library itself finds it.
 */
export function keepPacketsLean(): void {
  const require = createRequire(import.meta.resolve("mqtt"));
  const { writeToStream } = require("mqtt-packet") as { writeToStream: { cacheNumbers: boolean } };
  writeToStream.cacheNumbers = false;
}
