#!/usr/bin/env node
import { isWorkerReady } from "./shell/readiness-probe.ts";

// The health check of the image runs every minute, so it loads the program only if the worker is not ready.
if (await isWorkerReady(process.argv.slice(2), process.env)) process.exit();
const { runCommandLine: start } = await import("./start-command-line.ts");
await start();
