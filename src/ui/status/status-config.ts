import { z } from "zod";
import { isLoopbackHost } from "../../core/http/loopback.ts";
import { SecretRef } from "../../core/runtime/secret.ts";

const TrustedProxy = z.strictObject({
  address: z.union([z.ipv4(), z.ipv6()], { error: "Write the proxy's address as 192.0.2.7 or 2001:db8::7." }).meta({
    description:
      "Address that the proxy connects from. Wrong passwords then count for the last address in X-Forwarded-For.",
  }),
  user_header: z
    .string()
    .regex(/^[A-Za-z0-9-]{1,64}$/, "A header name consists of letters, digits and `-`.")
    .optional()
    .meta({
      description:
        "Header in which the proxy names who is logged in, such as X-Forwarded-User. It says who did what; it lets nobody in.",
    }),
});

export type TrustedProxy = z.output<typeof TrustedProxy>;

export const StatusConfig = z
  .strictObject({
    host: z
      .string()
      .default("127.0.0.1")
      .meta({ description: "Address to listen on; loopback unless you say otherwise." }),
    port: z.int().min(0).max(65_535).default(9850).meta({ description: "Port; 0 takes a free one." }),
    password: SecretRef.optional().meta({
      description:
        "Password for the user `plenum`. Needed on any address but loopback, and for every change from the page except stopping all writing; health needs none.",
    }),
    viewer_password: SecretRef.optional().meta({
      description: "Password for the user `viewer`, who may look and change nothing.",
    }),
    metrics_token: SecretRef.optional().meta({
      description: "Token (Authorization: Bearer) that opens /metrics and nothing else.",
    }),
    trusted_proxy: TrustedProxy.optional().meta({
      description: "The proxy in front, so that what it says about its visitors is believed.",
    }),
    behind_tls_proxy: z.boolean().default(false).meta({
      description: "True states that a proxy in front speaks TLS. Needed on any address but loopback.",
    }),
  })
  .superRefine((status, context) => {
    for (const option of ["viewer_password", "metrics_token"] as const) {
      if (status[option] === undefined || status.password !== undefined) continue;
      context.addIssue({
        code: "custom",
        path: [option],
        message: "Without `password` everybody may do everything; give that as well.",
      });
    }
    if (/^[^:]*:\d+$/.test(status.host)) {
      const message = "Write the address alone; the port goes under `port`.";
      context.addIssue({ code: "custom", path: ["host"], message });
      return;
    }
    if (isLoopbackHost(status.host)) return;
    if (status.password === undefined || !status.behind_tls_proxy) {
      context.addIssue({
        code: "custom",
        path: ["host"],
        message: "An address that others can reach needs both a password and behind_tls_proxy: true.",
      });
    }
  });
export type StatusConfig = z.output<typeof StatusConfig>;
