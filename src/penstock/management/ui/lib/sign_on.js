// Single sign-on: the authorisation code flow with PKCE (RFC 6749, RFC 7636), as /api/auth configures it.
//
//   leave(server)   goes to the provider, which sends the browser back to CALLBACK
//   arrive()        back from there, or from a provider's own page: begins the session
//   renewSoon()     gets the next token before this one ends, if the provider gives refresh tokens
//   providersEnd()  the provider's address that ends its session, "" = it has none
//
// The access token is the broker's, which keeps it for the session; no script keeps it. The tab that logged in
// keeps the refresh token, and the ID token that the provider's end asks for, until it is closed or logs out.

import { beginSession } from "./api.js";

const CALLBACK = "/js/oidc-oauth/login-callback.html";
const LEFT = "penstock.sign-on"; // what the way back needs
const TOKENS = "penstock.tokens";
const AHEAD_S = 60;
const AGAIN_MS = 15_000;
const LEAST_MS = 1000;
const DAY_MS = 86_400_000;

const recall = (key) => JSON.parse(sessionStorage.getItem(key));
const keep = (key, value) => sessionStorage.setItem(key, JSON.stringify(value));
const home = () => `${location.origin}/`;

/** Resource servers of /api/auth, each with what stands at its top. */
export function serversOf(auth) {
  const { oauth_resource_servers: servers, ...rest } = auth;
  return Object.values(servers ?? {}).map((server) => ({ ...rest, ...server }));
}

function base64url(bytes) {
  return btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

const random = () => base64url(crypto.getRandomValues(new Uint8Array(32)));

async function askProvider(what, address, options) {
  let response;
  try {
    response = await fetch(address, { ...options, cache: "no-store", referrerPolicy: "no-referrer" });
  } catch {
    throw new Error(`The provider's ${what} at ${address} cannot be read: is it there, does it allow this page (CORS), and is its address configured?`);
  }
  const body = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(`The provider refused: ${body.error_description ?? body.error ?? response.status}`);
  return body;
}

const metadataOf = (server) =>
  askProvider("document", server.oauth_metadata_url ?? `${server.oauth_provider_url}/.well-known/openid-configuration`);

export async function leave(server) {
  if (server.oauth_initiated_logon_type === "idp_initiated") return location.assign(server.oauth_provider_url);
  if (!crypto.subtle) throw new Error("Single sign-on needs HTTPS, or a page of this machine.");
  const metadata = await metadataOf(server);
  const verifier = random();
  const state = random();
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(verifier));
  const redirect = location.origin + CALLBACK;
  const end = server.end_session_endpoint ?? metadata.end_session_endpoint;
  keep(LEFT, { server, verifier, state, redirect, end, endpoint: metadata.token_endpoint, hash: location.hash });
  const address = new URL(metadata.authorization_endpoint);
  const params = {
    response_type: "code", client_id: server.oauth_client_id, redirect_uri: redirect,
    scope: server.oauth_scopes ?? "openid profile", state, code_challenge: base64url(new Uint8Array(digest)),
    code_challenge_method: "S256", resource: server.id, audience: server.id, ...server.oauth_authorization_endpoint_params,
  };
  for (const [name, value] of Object.entries(params)) address.searchParams.set(name, value);
  return location.assign(address);
}

export async function arrive() {
  const query = new URLSearchParams(location.search);
  const left = recall(LEFT);
  if (location.pathname === "/" && query.has("session")) {
    history.replaceState(null, "", "/");
    return beginSession();
  }
  if (location.pathname !== CALLBACK) return;
  sessionStorage.removeItem(LEFT);
  history.replaceState(null, "", "/");
  if (left?.hash) location.replace(left.hash); // the router hears of it
  if (!left || query.get("state") !== left.state) throw new Error("That log-in was not begun in this tab: log in again.");
  if (query.has("error")) throw new Error(`The provider refused: ${query.get("error_description") ?? query.get("error")}`);
  await take(left, {
    grant_type: "authorization_code", code: query.get("code") ?? "", redirect_uri: left.redirect, code_verifier: left.verifier,
  });
}

/** Gets a token and begins the session with it, or goes on with it. */
async function take({ server, endpoint, end, refresh }, grant) {
  const form = new URLSearchParams({ ...grant, client_id: server.oauth_client_id, ...server.oauth_token_endpoint_params });
  if (server.oauth_client_secret) form.set("client_secret", server.oauth_client_secret);
  const found = await askProvider("token endpoint", endpoint, { method: "POST", body: form });
  await beginSession(`Bearer ${found.access_token}`);
  keep(TOKENS, {
    server, endpoint, end, id: found.id_token ?? recall(TOKENS)?.id, refresh: found.refresh_token ?? refresh,
    due: Date.now() + 1000 * (found.expires_in - Math.min(AHEAD_S, found.expires_in / 4)),
  });
  renewSoon();
}

let timer = 0;

export function renewSoon() {
  clearTimeout(timer);
  const tokens = recall(TOKENS);
  if (!tokens?.refresh || !tokens.due) return;
  const wait = tokens.due - Date.now();
  // A longer timer than a browser can set would fire at once, and one of no length again and again.
  timer = wait > DAY_MS ? setTimeout(renewSoon, DAY_MS) : setTimeout(renew, Math.max(LEAST_MS, wait));
}

async function renew() {
  const tokens = recall(TOKENS);
  if (!tokens) return; // logged out meanwhile
  try {
    await take(tokens, { grant_type: "refresh_token", refresh_token: tokens.refresh });
  } catch (error) {
    console.info(error.message); // the broker ends the session when its token ends
    timer = setTimeout(renew, AGAIN_MS);
  }
}

export function providersEnd() {
  const tokens = recall(TOKENS);
  if (!tokens?.end) return "";
  const address = new URL(tokens.end);
  const params = { id_token_hint: tokens.id, client_id: tokens.server.oauth_client_id, post_logout_redirect_uri: home() };
  for (const [name, value] of Object.entries(params)) if (value) address.searchParams.set(name, value);
  return address.href;
}
