import { execFileSync } from "node:child_process";
import { existsSync, readdirSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { AclOperations, AclPermissionTypes, Admin, ResourcePatternTypes, ResourceTypes } from "@platformatic/kafka";
import { programPath } from "../../../real-servers.ts";

export const KAFKA = "4.1.0";

export function findMissingProgram(): string | null {
  const packages = { java: "default-jre-headless", mvn: "maven", kcat: "kafkacat" };
  const absentPackages = Object.entries(packages).filter(([program]) => {
    try {
      execFileSync("sh", ["-c", `command -v ${program}`], { stdio: "ignore" });
      return false;
    } catch {
      return true;
    }
  });
  if (absentPackages.length === 0) return null;
  const names = absentPackages.map(([program]) => program).join(", ");
  return `missing here: ${names} (apt-get install ${absentPackages.map(([, name]) => name).join(" ")})`;
}

export function classPath(): string {
  const folder = join(tmpdir(), `kafka-jars-${KAFKA}`);
  if (!existsSync(folder) || readdirSync(folder).length < 40) {
    const pom = join(import.meta.dirname, "pom.xml");
    execFileSync("mvn", ["-q", "-B", "-f", pom, "dependency:copy-dependencies", `-DoutputDirectory=${folder}`], {
      stdio: ["ignore", "ignore", "inherit"],
    });
  }
  return join(folder, "*");
}

export function readTopic(broker: string, topic: string) {
  const kcat = programPath("kcat") ?? "kcat";
  const format = "%p\\t%k\\t%h\\n";
  const options = ["-b", broker, "-C", "-t", topic, "-o", "beginning", "-e", "-q", "-f", format];
  const output = execFileSync(kcat, options, { maxBuffer: 2 ** 30, stdio: ["ignore", "pipe", "ignore"] }).toString();
  return output
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => {
      const [partition = "", key = "", headers = ""] = line.split("\t");
      return { partition: Number(partition), key, id: /(?:^|,)ce_id=([^,]*)/.exec(headers)?.[1] ?? "" };
    });
}

export async function createTopic(
  broker: string,
  name: string,
  partitions: number,
  configs: Readonly<Record<string, string>> = {},
): Promise<void> {
  const admin = new Admin({ clientId: "plenum-test", bootstrapBrokers: [broker], retries: 20, retryDelay: 250 });
  try {
    const settings = Object.entries(configs).map(([key, value]) => ({ name: key, value }));
    await admin.createTopics({ topics: [name], partitions, replicas: 1, configs: settings });
    await admin.metadata({ topics: [name], forceUpdate: true });
  } finally {
    await admin.close();
  }
}

export async function allowWriting(broker: string, principal: string, prefix: string): Promise<void> {
  const admin = new Admin({ clientId: "plenum-test", bootstrapBrokers: [broker] });
  const right = {
    resourceType: ResourceTypes.TOPIC,
    resourceName: prefix,
    resourcePatternType: ResourcePatternTypes.PREFIXED,
    principal,
    host: "*",
    operation: AclOperations.WRITE,
    permissionType: AclPermissionTypes.ALLOW,
  };
  try {
    await admin.createAcls({ creations: [right] });
  } finally {
    await admin.close();
  }
}
