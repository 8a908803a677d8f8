import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { parse, stringify } from "yaml";
import { Config } from "#src/app/config/config.ts";

/** Renders the subset of Helm's template language that the chart uses, because Helm is not installed. */

const CHART = join(import.meta.dirname, "../../packages/helm/plenum");
const readChartFile = (path: string) => readFileSync(join(CHART, path), "utf8");
const chart = parse(readChartFile("Chart.yaml"));
const defaults = parse(readChartFile("values.yaml"));

type Values = Readonly<Record<string, unknown>>;

function lookUp(path: string, scope: Values): unknown {
  let foundValue: unknown = scope;
  for (const pathPart of path.split(".").filter(Boolean)) {
    if (typeof foundValue !== "object" || foundValue === null || !(pathPart in foundValue))
      throw new Error(`${path}: there is no ${pathPart}`);
    foundValue = (foundValue as Values)[pathPart];
  }
  return foundValue;
}

const FUNCTIONS: Readonly<Record<string, (input: unknown, argument: unknown) => unknown>> = {
  quote: (input) => JSON.stringify(input),
  default: (input, other) => (input === "" ? other : input),
  toYaml: (input) => stringify(input).trimEnd(),
  sha256sum: (input) => createHash("sha256").update(String(input)).digest("hex"),
  nindent: (input, width) => `\n${String(input).replaceAll(/^/gm, " ".repeat(Number(width)))}`,
};

function evaluate(expression: string, scope: Values): unknown {
  const resolveWord = (text: string | undefined) => (text?.startsWith(".") ? lookUp(text, scope) : text);
  const [first = "", ...pipes] = expression.split("|").map((part) => part.trim());
  const [head = "", argument] = first.split(/\s+/);
  const callFunction = (name: string, input: unknown, more: unknown) => {
    const templateFunction = FUNCTIONS[name];
    if (templateFunction === undefined) throw new Error(`this test does not know ${name}`);
    return templateFunction(input, more);
  };
  let result = head.startsWith(".") ? lookUp(head, scope) : callFunction(head, resolveWord(argument), undefined);
  for (const pipe of pipes) {
    const [name = "", more] = pipe.split(/\s+/);
    result = callFunction(name, result, resolveWord(more));
  }
  return result;
}

/** Helm treats an empty list as false. */
const isTrue = (value: unknown) => (Array.isArray(value) ? value.length > 0 : Boolean(value));

function render(template: string, values: Values) {
  const templateScope = { Values: values, Release: { Name: "campus" }, Chart: { AppVersion: chart.appVersion } };
  const renderedText = readChartFile(`templates/${template}`)
    .replaceAll(/\n *\{\{- if (\S+) \}\}(.*?)\n *\{\{- end \}\}/gs, (_, path, body) =>
      isTrue(lookUp(path, templateScope)) ? body : "",
    )
    .replaceAll(/(?:\s*\{\{-|\{\{) ?(.*?) \}\}/g, (_, expression) => String(evaluate(expression, templateScope)));
  expect(renderedText).not.toContain("{{");
  return parse(renderedText);
}

const set = render("statefulset.yaml", defaults);
const pod = set.spec.template.spec;
const [container] = pod.containers;

describe("the Helm chart", () => {
  test("has the version of Plenum and its container image", () => {
    const { version } = JSON.parse(readFileSync(join(CHART, "../../../package.json"), "utf8"));
    expect(chart).toMatchObject({ apiVersion: "v2", name: "plenum", version, appVersion: version });
    expect(container.image).toBe(`plenum:${version}`);
  });

  test("runs one worker with one state volume", () => {
    expect(set).toMatchObject({ kind: "StatefulSet", spec: { replicas: 1 } });
    expect(set.spec.volumeClaimTemplates).toHaveLength(1);
    expect(set.spec.volumeClaimTemplates[0].spec).toEqual({
      accessModes: ["ReadWriteOnce"],
      resources: { requests: { storage: "5Gi" } },
    });
    const otherSet = render("statefulset.yaml", { ...defaults, state: { storageClassName: "local", size: "1Gi" } });
    expect(otherSet.spec.volumeClaimTemplates[0].spec.storageClassName).toBe("local");
  });

  test("runs the container without root, capabilities or a service account token", () => {
    expect(pod).toMatchObject({ automountServiceAccountToken: false });
    expect(pod.securityContext).toMatchObject({
      ...{ runAsNonRoot: true, runAsUser: 10001, fsGroup: 10001, fsGroupChangePolicy: "OnRootMismatch" },
      seccompProfile: { type: "RuntimeDefault" },
    });
    expect(container.securityContext).toEqual({
      readOnlyRootFilesystem: true,
      allowPrivilegeEscalation: false,
      capabilities: { drop: ["ALL"] },
    });
    expect(container.resources.limits).toHaveProperty("memory");
  });

  test("uses the image's health check command for its probes, without HTTP", () => {
    const dockerfile = readFileSync(join(CHART, "../../../Dockerfile"), "utf8");
    const [, healthCheck = ""] = /^HEALTHCHECK .* CMD (\[.*\])$/m.exec(dockerfile) ?? [];
    for (const probe of ["startupProbe", "livenessProbe"]) {
      expect(container[probe].exec, probe).toEqual({ command: JSON.parse(healthCheck) });
      expect(container[probe], probe).not.toHaveProperty("httpGet");
      // A probe starts a process: one every 60 s uses 0.07 % of a core.
      expect(container[probe].periodSeconds).toBeGreaterThanOrEqual(probe === "startupProbe" ? 5 : 60);
    }
    const mount = container.volumeMounts.find(({ name }: { name: string }) => name === "config").mountPath;
    expect(container).not.toHaveProperty("readinessProbe");
    expect(container.livenessProbe.exec.command.at(-1)).toBe(`${mount}/plenum.yaml`);
    expect(container.ports).toEqual([{ name: "status", containerPort: 9850 }]);
  });

  test("allows connections only from the configured peers and only to the status port", () => {
    const policy = render("networkpolicy.yaml", defaults);
    expect(policy).toMatchObject({ apiVersion: "networking.k8s.io/v1", kind: "NetworkPolicy" });
    expect(policy.spec).toEqual({
      podSelector: { matchLabels: set.spec.selector.matchLabels },
      policyTypes: ["Ingress"],
      ingress: [{ ports: [{ port: "status" }], from: [{ podSelector: {} }] }],
    });
    const peer = { namespaceSelector: { matchLabels: { "kubernetes.io/metadata.name": "ingress-nginx" } } };
    const of = (from: readonly object[]) =>
      render("networkpolicy.yaml", { ...defaults, networkPolicy: { from } }).spec.ingress;
    expect(of([peer])).toEqual([{ ports: [{ port: "status" }], from: [peer] }]);
    expect(of([]), "an empty `from` in a rule would let everybody in").toBeUndefined();
  });

  test("mounts each volume exactly once", () => {
    const names = [
      ...pod.volumes,
      ...set.spec.volumeClaimTemplates.map(({ metadata }: { metadata: object }) => metadata),
    ];
    expect(names.map(({ name }) => name).toSorted()).toEqual(
      container.volumeMounts.map(({ name }: { name: string }) => name).toSorted(),
    );
    expect(pod.volumes.find(({ name }: { name: string }) => name === "secrets").secret).toEqual({
      secretName: "plenum",
      defaultMode: 0o440,
    });
  });

  test("contains a valid configuration with secrets at their mount path", () => {
    const { data } = render("configmap.yaml", defaults);
    const config = Config.parse(parse(data["plenum.yaml"]));
    const mounted = (name: string) =>
      container.volumeMounts.find((mount: { name: string }) => mount.name === name).mountPath;
    expect(config.state.folder).toBe(`${mounted("state")}/state`);
    expect(config.sources.main?.token).toEqual({ file: `${mounted("secrets")}/token` });
    const secretFolders = [...data["plenum.yaml"].matchAll(/file: (\S+)\//g)].map(([, folder]) => folder);
    expect(new Set(secretFolders)).toEqual(new Set([mounted("secrets")]));
  });

  test("restarts the pod after a configuration change, and its service selects the pod", () => {
    const changedSet = render("statefulset.yaml", { ...defaults, config: { ...defaults.config, sinks: {} } });
    expect(changedSet.spec.template.metadata.annotations).not.toEqual(set.spec.template.metadata.annotations);
    const service = render("service.yaml", defaults);
    expect(set.spec.template.metadata.labels).toMatchObject(service.spec.selector);
    expect(set.spec.serviceName).toBe(service.metadata.name);
    expect(set.spec.selector.matchLabels).toEqual(set.spec.template.metadata.labels);
  });

  test("has only the templates that these tests render, and notes", () => {
    expect(readdirSync(join(CHART, "templates")).toSorted()).toEqual([
      "NOTES.txt",
      "configmap.yaml",
      "networkpolicy.yaml",
      "service.yaml",
      "statefulset.yaml",
    ]);
  });
});
