import { z } from "zod";
import { isLoopbackHost } from "../../src/core/http/loopback.ts";
import { SecretRef } from "../../src/core/runtime/secret.ts";
import { byteSizeSchema } from "../../src/core/values/byte-size.ts";
import { checkedText } from "../../src/core/values/checked-text.ts";
import { Duration } from "../../src/core/values/duration.ts";
import { DEFAULT_LAYOUT, findPrefixError, findTemplateError } from "./topics.ts";

const OptionalText = z.string().min(1).optional();

const TlsOptions = z.strictObject({
  ca_file: OptionalText.meta({
    description: "PEM file of the authority that signed the broker's certificate, if it is private.",
  }),
  cert_file: OptionalText.meta({
    description: "PEM file with Plenum's certificate, if the broker requires client certificates.",
  }),
  key_file: OptionalText.meta({ description: "PEM file with the key of the client certificate." }),
  servername: OptionalText.meta({
    description: "Name in the broker's certificate, if it differs from the host of `url`.",
  }),
});

const RetainOptions = z.strictObject({
  values: z.boolean().default(true).meta({ description: "Retain the last value of every tag." }),
  alarms: z.boolean().default(true).meta({ description: "Retain the state of every alarm." }),
  inventory: z.boolean().default(true).meta({
    description: "Retain the inventory: sites and their status, gateways, hosts, systems, tags.",
  }),
});

const CommandOptions = z.strictObject({
  enabled: z.boolean().default(false).meta({
    description: "Subscribe to commands below `<prefix>/cmd/`. The section `commands` decides what may be written.",
  }),
});

const PositiveDuration = Duration.refine((ms) => ms > 0, "Use more than 0s.");

export const MqttConfig = z
  .strictObject({
    url: checkedText(findUrlError).meta({
      description: "The broker: mqtts://host, mqtts://host:port or mqtt://host.",
    }),
    protocol: z
      .enum(["5", "3.1.1"])
      .default("5")
      .meta({ description: 'MQTT version: "5", or "3.1.1" for a broker that does not support 5.' }),
    client_id: z
      .string()
      .regex(/^[A-Za-z0-9_.-]{1,128}$/, "Use up to 128 letters, digits, `_`, `.` and `-`.")
      .optional()
      .meta({
        description: "Client id. By default made from the prefix and the names of sink and machine.",
      }),
    username: OptionalText.meta({ description: "User name for the broker." }),
    password: SecretRef.optional(),
    plain_text: z.boolean().default(false).meta({
      description: "Allow a password or commands over mqtt://, where others in the network can read them.",
    }),
    tls: TlsOptions.prefault({}).meta({ description: "Only for mqtts://; certificates are always verified." }),
    prefix: checkedText(findPrefixError).default("plenum").meta({ description: "First part of every topic." }),
    topic: checkedText(findTemplateError).default(DEFAULT_LAYOUT).meta({
      description:
        "Layout of the topics. Leave out {site} only if there is just one. Leave out {source} with several sources only if the worker is not in a fleet and the layout has neither {kind} nor {id}. Names are possible too: {site_name}, {system}, {gateway}, {tag} (id) and {tag_name}; a layout without {kind} and {id} is for tags only.",
    }),
    payload: z.enum(["json", "plain", "both"]).default("json").meta({
      description:
        "Form of live values. `plain` publishes the bare value, such as `20.0`, instead of JSON; `both` publishes it as `value/plain` next to the JSON. Both add the topic `quality`.",
    }),
    retain: RetainOptions.prefault({}).meta({ description: "Messages that the broker retains for new subscribers." }),
    keepalive: Duration.prefault("30s")
      .refine((ms) => ms >= 1_000 && ms <= 3_600_000, "Use 1s to 1h.")
      .meta({
        description: "Keep-alive interval. The broker publishes the last will after 1.5 times this without a packet.",
      }),
    connect_deadline: PositiveDuration.prefault("15s").meta({
      description: "Maximum time to connect to the broker.",
    }),
    publish_deadline: PositiveDuration.prefault("10s").meta({
      description: "Maximum time without an acknowledgement while messages wait for one.",
    }),
    max_in_flight: z
      .int()
      .min(1)
      .max(1_000)
      .default(100)
      .meta({ description: "Maximum messages without an acknowledgement; the broker can set a lower limit." }),
    max_message_bytes: byteSizeSchema({ min: 1_024, max: 256_000_000 }).prefault("256KiB").meta({
      description: "Larger messages become dead letters; the broker can set a lower limit.",
    }),
    commands: CommandOptions.prefault({}).meta({ description: "Commands from MQTT that write tags." }),
  })
  .superRefine((config, context) => {
    const reportIssue = (path: string, message: string) => context.addIssue({ code: "custom", path: [path], message });
    const usesTls = config.url.startsWith("mqtts:");
    if (!usesTls && Object.keys(config.tls).length > 0) reportIssue("tls", "Write mqtts:// to use TLS.");
    if ((config.tls.cert_file === undefined) !== (config.tls.key_file === undefined))
      reportIssue("tls", "cert_file and key_file belong together; give both or none.");
    if (config.password !== undefined && config.username === undefined)
      reportIssue("username", "A password needs a username.");
    const needsTls = config.password !== undefined || config.commands.enabled;
    if (!usesTls && needsTls && !config.plain_text && !isLoopbackHost(URL.parse(config.url)?.hostname ?? "")) {
      reportIssue("url", "A password or commands need mqtts://; set plain_text: true to send them readable anyway.");
    }
  })
  .meta({ description: "Topics at an MQTT broker, and commands from there." });
export type MqttConfig = z.infer<typeof MqttConfig>;

function findUrlError(text: string): string | null {
  const url = URL.parse(text);
  if (url === null || !/^mqtts?:$/.test(url.protocol) || url.hostname === "") {
    return "Write the broker as mqtts://host, mqtts://host:port or mqtt://host.";
  }
  if (url.username !== "" || url.password !== "")
    return "Take the user name and password out of the address; they go under `username` and `password`.";
  if (!/^\/?$/.test(url.pathname) || url.search !== "" || url.hash !== "")
    return "The address ends with the host or the port.";
  return null;
}
