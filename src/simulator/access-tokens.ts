import type { TokenOptions } from "./options.ts";

export interface Token {
  readonly text: string;
  readonly name: string;
  readonly user: { readonly id: number; readonly name: string; readonly email: string };
  readonly abilities: readonly string[];
  readonly permissions: readonly string[];
  readonly sites: "all" | readonly number[];
  /** Tags in the views of a user with component permissions only; null: all. */
  readonly visibleTags: ReadonlySet<string> | null;
  readonly expiresAtMs: number;
  readonly revoked: boolean;
}

export type TokenChange = Partial<
  Pick<TokenOptions, "abilities" | "permissions" | "sites" | "expires_at" | "revoked"> & {
    visible_tags: readonly string[] | null;
  }
>;

const TOKEN_LIFETIME_MS = 365 * 86_400_000;

export type Tokens = ReturnType<typeof createTokens>;

export function createTokens(settings: readonly TokenOptions[], epochMs: number) {
  const tokens = new Map(settings.map((setting) => [setting.token, createToken(setting, epochMs)]));
  const changes = new Map<string, TokenChange>();
  return {
    changes,
    has: (text: string) => tokens.has(text),
    authenticate(authorization: string | undefined, nowMs: number): Token | undefined {
      const tokenText = /^Bearer +(\S+)$/i.exec(authorization ?? "")?.[1];
      const token = tokenText === undefined ? undefined : tokens.get(tokenText);
      return token !== undefined && !token.revoked && nowMs < token.expiresAtMs ? token : undefined;
    },
    change(text: string, change: TokenChange): void {
      const token = tokens.get(text);
      if (token === undefined) throw new Error("No such token.");
      changes.set(text, { ...changes.get(text), ...change });
      const { visible_tags: tags, expires_at, ...others } = change;
      tokens.set(text, {
        ...token,
        ...others,
        ...(tags === undefined ? {} : { visibleTags: tags === null ? null : new Set(tags) }),
        ...(expires_at === undefined ? {} : { expiresAtMs: Date.parse(expires_at) }),
      });
    },
  };
}

function createToken(setting: TokenOptions, epochMs: number): Token {
  const { token: text, name, abilities, permissions, sites, revoked, visible_tags, expires_at } = setting;
  return {
    text,
    name,
    user: { id: setting.user_id, name: setting.user_name, email: setting.user_email },
    abilities,
    permissions,
    sites,
    revoked,
    visibleTags: visible_tags === undefined ? null : new Set(visible_tags),
    expiresAtMs: expires_at === undefined ? epochMs + TOKEN_LIFETIME_MS : Date.parse(expires_at),
  };
}

export const maySeeSite = (token: Token, siteId: number): boolean =>
  token.sites === "all" || token.sites.includes(siteId);
