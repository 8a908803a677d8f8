import type { TokenOptions } from "./options.ts";
import { DAY_MS } from "./timeline.ts";

export interface Token {
  readonly text: string;
  readonly name: string;
  readonly user: { readonly id: number; readonly name: string; readonly email: string };
  readonly abilities: readonly string[];
  readonly permissions: readonly string[];
  readonly sites: "all" | readonly number[];
  /** Tags reachable through the views of a user with component permissions only; null: all. */
  readonly visibleTags: ReadonlySet<string> | null;
  readonly expiresAtMs: number;
  readonly revoked: boolean;
}

/** What the control may change about a token while the simulator runs. */
export type TokenChange = Partial<
  Pick<TokenOptions, "abilities" | "permissions" | "sites" | "expires_at" | "revoked"> & {
    visible_tags: readonly string[] | null;
  }
>;

export interface Tokens {
  /** The token of an Authorization header that is known, not revoked and has not expired. */
  authenticate(authorization: string | undefined, nowMs: number): Token | undefined;
  get(text: string): Token | undefined;
  change(text: string, change: TokenChange): void;
  readonly changes: Map<string, TokenChange>;
}

const TOKEN_LIFE_DAYS = 365;

export function createTokens(settings: readonly TokenOptions[], epochMs: number): Tokens {
  const tokens = new Map(settings.map((setting) => [setting.token, tokenOf(setting, epochMs)]));
  const changes = new Map<string, TokenChange>();
  return {
    changes,
    get: (text) => tokens.get(text),
    authenticate(authorization, nowMs) {
      const text = /^Bearer +(\S+)$/i.exec(authorization ?? "")?.[1];
      const token = text === undefined ? undefined : tokens.get(text);
      return token !== undefined && !token.revoked && nowMs < token.expiresAtMs ? token : undefined;
    },
    change(text, change) {
      const token = tokens.get(text);
      if (token === undefined) throw new Error("No such token.");
      changes.set(text, { ...changes.get(text), ...change });
      const { visible_tags, expires_at, ...rest } = change;
      tokens.set(text, {
        ...token,
        ...rest,
        ...(visible_tags === undefined
          ? {}
          : { visibleTags: visible_tags === null ? null : new Set(visible_tags) }),
        ...(expires_at === undefined ? {} : { expiresAtMs: Date.parse(expires_at) }),
      });
    },
  };
}

function tokenOf(setting: TokenOptions, epochMs: number): Token {
  return {
    text: setting.token,
    name: setting.name,
    user: { id: setting.user_id, name: setting.user_name, email: setting.user_email },
    abilities: setting.abilities,
    permissions: setting.permissions,
    sites: setting.sites,
    revoked: setting.revoked,
    visibleTags: setting.visible_tags === undefined ? null : new Set(setting.visible_tags),
    expiresAtMs:
      setting.expires_at === undefined ? epochMs + TOKEN_LIFE_DAYS * DAY_MS : Date.parse(setting.expires_at),
  };
}

export function maySeeSite(token: Token, siteId: number): boolean {
  return token.sites === "all" || token.sites.includes(siteId);
}
