#!/usr/bin/env node
import { isReady } from "./shell/probe.ts";

// The health check of the image runs once a minute for years, so it does not load the program where the worker is ready.
if (await isReady(process.argv.slice(2), process.env)) process.exit();
const { start } = await import("./start.ts");
await start();
