import { readFileSync } from "node:fs";
import { join } from "node:path";
import { parse } from "yaml";
import { z } from "zod";
import { Duration } from "#src/core/values/duration.ts";
import { SyncConfig } from "#src/engine/sync/config.ts";
import { INVENTORY_KINDS } from "#src/simulator/build-response-records.ts";
import { SimulatorOptions } from "#src/simulator/options.ts";

const NamedAlarm = z.strictObject({ name: z.string(), site: z.int().default(3), tag: z.string().optional() });

const Step = z
  .strictObject({
    start: z.literal("worker"),
    stop: z.literal("worker"),
    restart: z.literal("worker"),
    "lose-state": z.literal("all"),
    raise: NamedAlarm,
    resolve: z.string(),
    retrigger: z.string(),
    delete: z.string(),
    acknowledge: z.strictObject({ name: z.string(), by: z.string() }),
    unacknowledge: z.string(),
    recover: z.strictObject({ name: z.string(), for: Duration }),
    gateway: z.strictObject({ id: z.int(), online: z.boolean() }),
    token: z
      .strictObject({
        sites: z.union([z.literal("all"), z.array(z.int())]),
        visible_tags: z.array(z.string()).nullable(),
      })
      .partial(),
    change: z.strictObject({
      kind: z.enum(INVENTORY_KINDS),
      id: z.union([z.string(), z.int()]),
      attributes: z.record(z.string(), z.unknown()).optional(),
      removed: z.boolean().optional(),
    }),
    faults: z.array(z.unknown()),
    "between-pages": z.strictObject({ resolve: z.string(), raise: z.string() }),
    wait: Duration,
    tells: z.array(z.string()),
  })
  .partial();
export type Step = z.infer<typeof Step>;

const World = z.strictObject({
  story: z.string(),
  simulator: z
    .custom<z.input<typeof SimulatorOptions>>((value) => SimulatorOptions.safeParse(value).success)
    .default({}),
  sync: z.custom<z.input<typeof SyncConfig>>((value) => SyncConfig.safeParse(value).success).default({}),
  page_size: z.int().default(500),
  active: z.array(NamedAlarm).default([]),
});
export type World = z.infer<typeof World>;

export function readWorld(folder: string): World {
  return World.parse(parse(readFileSync(join(folder, "world.yaml"), "utf8")));
}

export function readSteps(folder: string): readonly Step[] {
  return z.array(Step).parse(parse(readFileSync(join(folder, "steps.yaml"), "utf8")));
}
