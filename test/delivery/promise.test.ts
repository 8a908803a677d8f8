import { describe } from "vitest";
import { describePromise } from "../suites/promise-suite.ts";
import { inFolder } from "./dispatcher-harness.ts";

describe("delivery guarantees with the state in a folder", () => describePromise(40, inFolder));
