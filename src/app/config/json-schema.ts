import { z } from "zod";
import { Config } from "./config.ts";

/** The configuration file as JSON Schema (draft 7, which editors' YAML servers know), generated from zod. */
export function configJsonSchema(): Record<string, unknown> {
  return {
    ...z.toJSONSchema(Config, { target: "draft-7", io: "input", unrepresentable: "any" }),
    title: "Plenum configuration",
  };
}
