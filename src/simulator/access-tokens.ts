import type { AccessTokenOptions } from "./options.ts";

export interface AccessToken {
  readonly tokenText: string;
  readonly name: string;
  readonly user: { readonly id: number; readonly name: string; readonly email: string };
  readonly abilities: readonly string[];
  readonly permissions: readonly string[];
  readonly sites: "all" | readonly number[];
  /** Ids of the tags that the user may see; null: all tags. */
  readonly visibleTags: ReadonlySet<string> | null;
  readonly expiresAtMs: number;
  readonly revoked: boolean;
}

export type AccessTokenChange = Partial<
  Pick<AccessTokenOptions, "abilities" | "permissions" | "sites" | "expires_at" | "revoked"> & {
    visible_tags: readonly string[] | null;
  }
>;

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

function createAccessToken(setting: AccessTokenOptions, epochMs: number): AccessToken {
  const { token: tokenText, name, abilities, permissions, sites, revoked, visible_tags, expires_at } = setting;
  return {
    tokenText,
    name,
    user: { id: setting.user_id, name: setting.user_name, email: setting.user_email },
    abilities,
    permissions,
    sites,
    revoked,
    visibleTags: visible_tags === undefined ? null : new Set(visible_tags),
    expiresAtMs: expires_at === undefined ? epochMs + DEFAULT_TOKEN_LIFETIME_MS : Date.parse(expires_at),
  };
}

export const tokenSeesSite = (token: AccessToken, siteId: number): boolean =>
  token.sites === "all" || token.sites.includes(siteId);
