import { cpSync, existsSync, readFileSync, rmSync, statSync } from "node:fs";
import { join } from "node:path";
import { expect } from "vitest";
import { parse } from "yaml";
import { testFolder } from "../test-resources.ts";

export const ROOT = join(import.meta.dirname, "../..");

export interface Service {
  readonly image: string;
  readonly user: string;
  readonly command: readonly string[];
  readonly ports: readonly string[];
  readonly volumes: readonly string[];
  readonly secrets: readonly string[];
  readonly healthcheck: { readonly test: readonly string[] };
  readonly depends_on?: Readonly<Record<string, { readonly condition: string }>>;
}

export interface Compose {
  readonly services: Readonly<Record<string, Service>>;
  readonly secrets: Readonly<Record<string, { readonly file: string }>>;
}

export function readCompose(folder: string): Compose {
  return parse(readFileSync(join(ROOT, folder, "compose.yaml"), "utf8"), { merge: true }) as Compose;
}

/** Returns a temporary copy of the mounted files without those that `prepare` creates. */
export function copyPackages(folder: string): string {
  const root = testFolder("compose");
  for (const path of ["packages", "connectors/mqtt"]) cpSync(join(ROOT, path), join(root, path), { recursive: true });
  for (const path of ["secrets", "data", ".env"]) rmSync(join(root, folder, path), { recursive: true, force: true });
  return root;
}

export function expectSecured({ services }: Compose, service: Service): void {
  expect(service.image).toMatch(/:v?\d+(\.\d+){1,2}$/);
  expect(service).toMatchObject({ read_only: true, cap_drop: ["ALL"], security_opt: ["no-new-privileges:true"] });
  expect(service.user).toContain("PLENUM_UID");
  expect(service.healthcheck.test.length).toBeGreaterThan(1);
  expect(service.ports.filter((port) => !port.startsWith("127.0.0.1:"))).toEqual([]);
  for (const [other, { condition }] of Object.entries(service.depends_on ?? {})) {
    expect(Object.keys(services)).toContain(other);
    expect(condition).toBe("service_healthy");
  }
}

/** Expects that every mount exists and every secret is a non-empty file with mode 600. */
export function expectPrepared({ services, secrets }: Compose, folder: string): void {
  for (const [name, { volumes, secrets: used }] of Object.entries(services)) {
    for (const volume of volumes)
      expect(existsSync(join(folder, volume.split(":")[0] ?? "")), `${name} ${volume}`).toBe(true);
    for (const secret of used) expect(Object.keys(secrets), name).toContain(secret);
  }
  for (const { file } of Object.values(secrets)) {
    expect(statSync(join(folder, file)).mode & 0o777).toBe(0o600);
    expect(readFileSync(join(folder, file), "utf8").trim().length).toBeGreaterThan(2);
  }
  expect(readFileSync(join(folder, ".env"), "utf8")).toMatch(/^PLENUM_UID=[1-9]\d*\nPLENUM_GID=\d+\n$/);
}
