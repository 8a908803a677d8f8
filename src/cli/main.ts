#!/usr/bin/env node
import { isReady } from "./shell/probe.ts";

// The health check of the image runs every minute, so it loads the program only if the worker is not ready.
if (await isReady(process.argv.slice(2), process.env)) process.exit();
const { start } = await import("./start.ts");
await start();
