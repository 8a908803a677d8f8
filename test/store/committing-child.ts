import { writeSync } from "node:fs";
import { systemClock } from "#src/core/runtime/clock.ts";
import { openStore } from "#src/engine/store/open.ts";
import { valueEvent } from "../sample-events.ts";

/** Commits values with a snapshot each, and prints the number of a value after its commit. */
const [folder = "", first = "0"] = process.argv.slice(2);
const store = await openStore({ folder, clock: systemClock });
for (let n = Number(first); ; n += 1) {
  await store.commit({ documents: [{ set: "last", put: [["n", n]] }], events: [valueEvent(n)] });
  writeSync(1, `${n}\n`);
}
