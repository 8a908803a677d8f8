import { z } from "zod";
import { isLoopbackHost } from "../../src/core/http/loopback.ts";
import { SecretRef } from "../../src/core/runtime/secret.ts";
import { byteSizeSchema } from "../../src/core/values/byte-size.ts";
import { checkedText } from "../../src/core/values/checked-text.ts";
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
    description: "Use TLS; certificates are always verified. False for listeners without TLS.",
  }),
  ca_file: PemFilePath.meta({
    description: "PEM file of the authority that signed the brokers' certificates, if it is private.",
  }),
  cert_file: PemFilePath.meta({
    description: "PEM file with Plenum's certificate, if the brokers require client certificates.",
  }),
  key_file: PemFilePath.meta({ description: "PEM file with the key of the client certificate." }),
});

const KafkaSaslOptions = z.strictObject({
  mechanism: z
    .enum(["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
    .meta({ description: "Authentication mechanism; SCRAM does not send the password." }),
  username: z
    .string()
    .regex(/^[^\0,]+$/, "Leave out commas.")
    .meta({ description: "User name for the brokers." }),
  password: SecretRef,
});

const RequestDeadline = Duration.refine((ms) => ms >= 100 && ms <= 120_000, "Use 100ms to 2m.");

export const KafkaConfig = z
  .strictObject({
    brokers: z.array(BrokerAddress).min(1).max(50).meta({
      description: "Bootstrap brokers (bootstrap.servers) as host:port; two or three are enough.",
    }),
    tls: KafkaTlsOptions.prefault({}).meta({ description: "TLS to the brokers, on by default." }),
    sasl: KafkaSaslOptions.optional().meta({ description: "User name and password, if the brokers require them." }),
    plain_text: z.boolean().default(false).meta({
      description: "Allow a password without TLS, where others in the network can read it.",
    }),
    client_id: z
      .string()
      .regex(/^[A-Za-z0-9_.-]{1,128}$/, "Use up to 128 letters, digits, `_`, `.` and `-`.")
      .default("plenum")
      .meta({ description: "Client id in the brokers' logs, metrics and quotas." }),
    topic: checkedText(findTopicTemplateError).default("plenum.{noun}").meta({
      description:
        "Topic template with {noun}, {kind}, {source} and {site}. With {kind}, only events of one kind keep their order.",
    }),
    create_topics: z.boolean().default(false).meta({
      description: "Let the brokers create missing topics with their defaults (auto.create.topics.enable).",
    }),
    idempotent: z.boolean().default(true).meta({
      description:
        "Idempotent producer; false only for brokers without support (before Kafka 0.11, some compatible servers).",
    }),
    compression: z
      .enum(["none", "gzip", "snappy", "lz4", "zstd"])
      .default("none")
      .meta({ description: "Compression of batches; zstd needs Kafka 2.1." }),
    max_message_bytes: byteSizeSchema({ min: 1_024, max: 100_000_000 }).prefault("1MB").meta({
      description: "Larger messages become dead letters; at most max.message.bytes of the topics.",
    }),
    connect_deadline: RequestDeadline.prefault("10s").meta({ description: "Maximum time to connect to a broker." }),
    publish_deadline: RequestDeadline.prefault("30s").meta({
      description: "Maximum time until all in-sync replicas acknowledge a batch.",
    }),
  })
  .superRefine((config, context) => {
    const reportIssue = (path: string, message: string) => context.addIssue({ code: "custom", path: [path], message });
    const { enabled, ...tlsFiles } = config.tls;
    if (!enabled && Object.keys(tlsFiles).length > 0) reportIssue("tls", "Set tls.enabled: true to use these files.");
    if ((tlsFiles.cert_file === undefined) !== (tlsFiles.key_file === undefined))
      reportIssue("tls", "cert_file and key_file belong together; give both or none.");
    if (config.sasl !== undefined && !enabled && !config.plain_text) {
      if (config.brokers.some((broker) => !isLoopbackHost(parseBrokerAddress(broker).host)))
        reportIssue("sasl", "A password needs tls.enabled: true; set plain_text: true to send it readable anyway.");
    }
  })
  .meta({ description: "Events as records in Kafka: CloudEvents in binary mode." });
export type KafkaConfig = z.infer<typeof KafkaConfig>;

export type HostAndPort = ReturnType<typeof parseBrokerAddress>;

export function parseBrokerAddress(broker: string) {
  const [, host = "", port] = BROKER_ADDRESS_PATTERN.exec(broker) ?? [];
  return { host: host.replace(/^\[|\]$/g, ""), port: Number(port) };
}
