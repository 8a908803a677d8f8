import { z } from "zod";
import { isLoopbackHost } from "../../core/http/loopback.ts";
import { SecretRef } from "../../core/runtime/secret.ts";

const TrustedProxy = z.strictObject({
  address: z.union([z.ipv4(), z.ipv6()], { error: "Write the proxy's address as 192.0.2.7 or 2001:db8::7." }).meta({
    description:
      "Address of the proxy's connections. Wrong passwords then count by the last address in X-Forwarded-For.",
  }),
  user_header: z
    .string()
    .regex(/^[A-Za-z0-9-]{1,64}$/, "A header name consists of letters, digits and `-`.")
    .optional()
    .meta({
      description:
        "Header with the user that is logged in at the proxy, such as X-Forwarded-User. It names the author of a change and grants no access.",
    }),
});

export type TrustedProxy = z.output<typeof TrustedProxy>;

export const StatusConfig = z
  .strictObject({
    host: z.string().default("127.0.0.1").meta({ description: "Address to listen on." }),
    port: z.int().min(0).max(65_535).default(9850).meta({ description: "Port; 0 uses a free one." }),
    password: SecretRef.optional().meta({
      description:
        "Password of the user `plenum`. Required on any address except loopback, and for all changes from the page except stopping writes. Health checks need none.",
    }),
    viewer_password: SecretRef.optional().meta({
      description: "Password of the user `viewer`, who can read everything and change nothing.",
    }),
    metrics_token: SecretRef.optional().meta({
      description: "Token (Authorization: Bearer) for /metrics only.",
    }),
    trusted_proxy: TrustedProxy.optional().meta({
      description: "Proxy in front of the page, whose headers about visitors are used.",
    }),
    behind_tls_proxy: z.boolean().default(false).meta({
      description: "True states that a proxy in front uses TLS. Required on any address except loopback.",
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
    if (status.password === undefined || !status.behind_tls_proxy)
      context.addIssue({
        code: "custom",
        path: ["host"],
        message: "An address that others can reach needs both a password and behind_tls_proxy: true.",
      });
  });
export type StatusConfig = z.output<typeof StatusConfig>;
