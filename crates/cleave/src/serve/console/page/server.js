// What the page asks of the server. Whatever changes something carries the token of the log-in.

let token = "";

/** The event of a window whose log-in has ended. */
export const LOGGED_OUT = "loggedout";

export class Refused extends Error {
  constructor(status, error, rest) {
    super(error.message);
    this.status = status;
    this.error = error;
    this.rest = rest;
  }
}

async function answer(response) {
  let read = {};
  try {
    read = response.status === 204 ? {} : await response.json();
  } catch {
    read = { error: { message: `the server answered ${response.status} without a reason` } };
  }
  if (!response.ok) {
    throw new Refused(response.status, read.error || { message: `the server answered ${response.status}` }, read);
  }
  return read;
}

async function sent(path, options) {
  try {
    return await answer(await fetch(path, { credentials: "same-origin", cache: "no-store", ...options }));
  } catch (error) {
    if (error instanceof Refused) {
      const asksForIt = path === "/api/session" || path === "/api/login";
      if (error.status === 401 && !asksForIt) window.dispatchEvent(new Event(LOGGED_OUT));
      throw error;
    }
    throw new Refused(0, { message: "the server cannot be reached" });
  }
}

export function get(path) {
  return sent(path, {});
}

export function post(path, body) {
  return sent(path, {
    method: "POST",
    headers: { "content-type": "application/json", "x-cleave-token": token },
    body: JSON.stringify(body || {}),
  });
}

/** Who is logged in; throws what to ask for where nobody is. */
export async function session() {
  const known = await get("/api/session");
  token = known.token;
  return known;
}

export async function logIn(user, password) {
  const known = await post("/api/login", { user, password });
  token = known.token;
  return known;
}

export async function logOut() {
  await post("/api/logout");
  token = "";
}

export function view(name) {
  return get(`/api/view/${encodeURIComponent(name)}`);
}

/** Snapshots of what `shown` names, until the returned function is called. */
export function live(shown, take, lost) {
  const source = new EventSource(`/api/live?show=${encodeURIComponent(shown.join(","))}`);
  source.addEventListener("snapshot", (event) => take(JSON.parse(event.data)));
  source.onerror = () => lost(source.readyState === EventSource.CLOSED);
  return () => source.close();
}
