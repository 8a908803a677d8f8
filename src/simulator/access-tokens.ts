import { z } from "zod";
import { type AccessTokenOptions, USER_PERMISSIONS } from "./options.ts";

export type AccessToken = Readonly<ReturnType<typeof createAccessToken>>;

export const AccessTokenChange = z.strictObject({
  abilities: z.array(z.string()).exactOptional(),
  permissions: z.array(z.enum(USER_PERMISSIONS)).exactOptional(),
  sites: z.union([z.literal("all"), z.array(z.int())]).exactOptional(),
  visible_tags: z.array(z.string()).nullable().exactOptional(),
  expires_at: z.iso.datetime({ offset: true }).exactOptional(),
  revoked: z.boolean().exactOptional(),
});
export type AccessTokenChange = z.infer<typeof AccessTokenChange>;

const DEFAULT_TOKEN_LIFETIME_MS = 365 * 86_400_000;

export type AccessTokens = ReturnType<typeof createAccessTokens>;

export function createAccessTokens(settings: readonly AccessTokenOptions[], epochMs: number) {
  const tokensByText = new Map(settings.map((setting) => [setting.token, createAccessToken(setting, epochMs)]));
  const tokenChangesByText = new Map<string, AccessTokenChange>();
  return {
    changes: tokenChangesByText,
    has: (text: string) => tokensByText.has(text),
    authenticate(authorization: string | undefined, nowMs: number): AccessToken | undefined {
      const bearerTokenText = /^Bearer +(\S+)$/i.exec(authorization ?? "")?.[1];
      const token = bearerTokenText === undefined ? undefined : tokensByText.get(bearerTokenText);
      return token !== undefined && !token.revoked && nowMs < token.expiresAtMs ? token : undefined;
    },
    changeToken(text: string, change: AccessTokenChange): void {
      const token = tokensByText.get(text);
      if (token === undefined) throw new Error("No such token.");
      tokenChangesByText.set(text, { ...tokenChangesByText.get(text), ...change });
      const { visible_tags: tagIds, expires_at, ...otherChanges } = change;
      tokensByText.set(text, {
        ...token,
        ...otherChanges,
        ...(tagIds === undefined ? {} : { visibleTags: tagIds === null ? null : new Set(tagIds) }),
        ...(expires_at === undefined ? {} : { expiresAtMs: Date.parse(expires_at) }),
      });
    },
  };
}

function createAccessToken(setting: AccessTokenOptions, epochMs: number) {
  const { token: tokenText, name, abilities, permissions, sites, revoked, visible_tags, expires_at } = setting;
  return {
    tokenText,
    name,
    user: { id: setting.user_id, name: setting.user_name, email: setting.user_email },
    abilities,
    permissions,
    sites,
    revoked,
    /** Ids of the tags that the user may see; null: all tags. */
    visibleTags: visible_tags === undefined ? null : new Set(visible_tags),
    expiresAtMs: expires_at === undefined ? epochMs + DEFAULT_TOKEN_LIFETIME_MS : Date.parse(expires_at),
  };
}

export const tokenSeesSite = (token: AccessToken, siteId: number): boolean =>
  token.sites === "all" || token.sites.includes(siteId);
