import { z } from "zod";
import { isLoopbackHost } from "../../src/core/http/loopback.ts";
import { SecretRef } from "../../src/core/runtime/secret.ts";
import { byteSizeSchema } from "../../src/core/values/byte-size.ts";
import { Duration } from "../../src/core/values/duration.ts";
import { findTopicTemplateError } from "./topic-template.ts";

const BROKER_ADDRESS_PATTERN = /^(\[[0-9A-Fa-f:.]+\]|[^\s:/@[\]]+):(\d{1,5})$/;

const BrokerAddress = z.string().refine((text) => {
  const port = Number(BROKER_ADDRESS_PATTERN.exec(text)?.[2] ?? 0);
  return port >= 1 && port <= 65_535;
}, "Write a broker as host:port, without user name, password or path.");

const PemFilePath = z.string().min(1).optional();

const KafkaTlsOptions = z.strictObject({
  enabled: z.boolean().default(true).meta({
    description: "Speak TLS; certificates are always checked. false for listeners without.",
  }),
  ca_file: PemFilePath.meta({
    description: "PEM file of the authority that signed the brokers' certificates, if it is your own.",
  }),
  cert_file: PemFilePath.meta({ description: "PEM file with our certificate, where the brokers ask clients for one." }),
  key_file: PemFilePath.meta({ description: "PEM file with the key of that certificate." }),
});

const KafkaSaslOptions = z.strictObject({
  mechanism: z
    .enum(["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
    .meta({ description: "How name and password are shown; SCRAM does not send the password." }),
  username: z
    .string()
    .regex(/^[^\0,]+$/, "Leave out commas.")
    .meta({ description: "User name at the brokers." }),
  password: SecretRef,
});

const RequestDeadline = Duration.refine((ms) => ms >= 100 && ms <= 120_000, "Use 100ms to 2m.");

export const KafkaConfig = z
  .strictObject({
    brokers: z.array(BrokerAddress).min(1).max(50).meta({
      description: "Brokers that are asked for the others (bootstrap.servers), as host:port; two or three are enough.",
    }),
    tls: KafkaTlsOptions.prefault({}).meta({ description: "TLS to the brokers: on by default." }),
    sasl: KafkaSaslOptions.optional().meta({ description: "Name and password, where the brokers want them." }),
    plain_text: z.boolean().default(false).meta({
      description: "Allow a password without TLS, readable to everybody on the way.",
    }),
    client_id: z
      .string()
      .regex(/^[A-Za-z0-9_.-]{1,128}$/, "Use up to 128 letters, digits, `_`, `.` and `-`.")
      .default("plenum")
      .meta({ description: "Our name in the brokers' logs, metrics and quotas." }),
    topic: z
      .string()
      .superRefine((text, context) => {
        const message = findTopicTemplateError(text);
        if (message !== null) context.addIssue({ code: "custom", message });
      })
      .default("plenum.{noun}")
      .meta({
        description:
          "Template of the topics, with {noun}, {kind}, {source} and {site}. With {kind}, order is kept within a kind only.",
      }),
    create_topics: z.boolean().default(false).meta({
      description:
        "Ask the brokers to create a topic that is missing, with their defaults (auto.create.topics.enable).",
    }),
    idempotent: z.boolean().default(true).meta({
      description: "Idempotent producer; false only for brokers that cannot (before Kafka 0.11, some imitations).",
    }),
    compression: z
      .enum(["none", "gzip", "snappy", "lz4", "zstd"])
      .default("none")
      .meta({ description: "How batches are compressed; zstd needs Kafka 2.1." }),
    max_message_bytes: byteSizeSchema({ min: 1_024, max: 100_000_000 }).prefault("1MB").meta({
      description: "Larger messages become dead letters; not above max.message.bytes of the topics.",
    }),
    connect_deadline: RequestDeadline.prefault("10s").meta({ description: "Longest wait for a broker to let us in." }),
    publish_deadline: RequestDeadline.prefault("30s").meta({
      description: "Longest wait for the acknowledgement of a batch by all replicas in sync.",
    }),
  })
  .superRefine((config, context) => {
    const reportIssue = (path: string, message: string) => context.addIssue({ code: "custom", path: [path], message });
    const { enabled, ...files } = config.tls;
    if (!enabled && Object.keys(files).length > 0) reportIssue("tls", "Set tls.enabled: true to use these files.");
    if ((files.cert_file === undefined) !== (files.key_file === undefined)) {
      reportIssue("tls", "cert_file and key_file belong together; give both or none.");
    }
    if (config.sasl !== undefined && !enabled && !config.plain_text) {
      if (config.brokers.some((broker) => !isLoopbackHost(parseBrokerAddress(broker).host))) {
        reportIssue("sasl", "A password needs tls.enabled: true; set plain_text: true to send it readable anyway.");
      }
    }
  })
  .meta({ description: "Events as records in Kafka: CloudEvents in binary mode." });
export type KafkaConfig = z.infer<typeof KafkaConfig>;

export interface HostAndPort {
  readonly host: string;
  readonly port: number;
}

export function parseBrokerAddress(broker: string): HostAndPort {
  const [, host = "", port] = BROKER_ADDRESS_PATTERN.exec(broker) ?? [];
  return { host: host.replace(/^\[|\]$/g, ""), port: Number(port) };
}
