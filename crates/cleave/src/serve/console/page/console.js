// The console of a Cleave server: logs in, and shows one section after the other.

import {
  html,
  svg,
  byId,
  say,
  refusal,
  table,
  objects,
  bytes,
  count,
  milliseconds,
  shortened,
} from "./document.js";
import { session, logIn, logOut, view, post, live, Refused, LOGGED_OUT } from "./server.js";
import { statement, legend } from "./timeline.js";
import { queryPage, edit, isIn } from "./query.js";

const HISTORY = 120;
const STATEMENTS_MAX = 12;
let stopFeed = () => {};
let turn = 0;

/** A row of what is measured over time. */
function sparkline(values, second, label) {
  const most = Math.max(1e-9, ...values, ...second);
  const line = (of, name) =>
    svg("polyline", {
      class: name,
      points: of
        .map((value, at) => `${((HISTORY - of.length + at) / (HISTORY - 1)) * 100},${29 - (value / most) * 27}`)
        .join(" "),
    });
  return svg(
    "svg",
    { viewBox: "0 0 100 30", preserveAspectRatio: "none", role: "img", "aria-label": label },
    line(values, "line"),
    second.length ? line(second, "line second") : null,
  );
}

function card(name, value, drawing, note) {
  return html(
    "div",
    { class: "card" },
    html("span", { class: "name" }, name),
    html("b", {}, value),
    drawing,
    note ? html("span", { class: "soft" }, note) : null,
  );
}

function stopButtons(pid, done) {
  const send = (terminate) => async () => {
    if (terminate && !confirm(`End session ${pid}? Its transaction is rolled back.`)) return;
    try {
      const answer = await post("/api/stop", { pid: Number(pid), terminate });
      say(
        answer.stopped
          ? `Session ${pid} was told to ${terminate ? "end" : "cancel its statement"}`
          : `There is no session ${pid}`,
      );
      if (done) done();
    } catch (error) {
      say(error.message);
    }
  };
  return [
    html(
      "button",
      { type: "button", "aria-label": `Cancel the statement of session ${pid}`, onclick: send(false) },
      "Cancel",
    ),
    " ",
    html(
      "button",
      { type: "button", class: "bad", "aria-label": `End session ${pid}`, onclick: send(true) },
      "End",
    ),
  ];
}

/**
 * Replaces `place`'s content, unless somebody has marked text there: returns whether it did. Focus and scrolling stay
 * where they were.
 */
function refresh(place, content) {
  const marked = document.getSelection();
  if (marked && !marked.isCollapsed && place.contains(marked.anchorNode)) return false;
  const focused = place.contains(document.activeElement) ? document.activeElement.getAttribute("aria-label") : null;
  const regions = () => [...place.querySelectorAll("[role=region]")];
  const scrolled = new Map(regions().map((region) => [region.getAttribute("aria-label"), region.scrollLeft]));
  place.replaceChildren(...content);
  for (const region of regions()) region.scrollLeft = scrolled.get(region.getAttribute("aria-label")) || 0;
  if (focused)
    [...place.querySelectorAll("[aria-label]")].find((one) => one.getAttribute("aria-label") === focused)?.focus();
  return true;
}

/**
 * Gives `take` what the server has told by each snapshot, and which parts have changed since it has last taken all of
 * them; it returns false if it has not. A page that nobody sees asks for nothing.
 */
function feed(shown, take) {
  let again = 0;
  let close = null;
  const begin = () => {
    const known = {};
    let changed = new Set();
    close = live(
      shown,
      (snapshot) => {
        // Parts that are the same as before are left out, and queries where there are none.
        Object.assign(known, { queries: [] }, snapshot);
        for (const name of Object.keys(snapshot)) changed.add(name);
        if (take(known, changed) !== false) changed = new Set();
      },
      (isOver) => {
        say(isOver ? "The live feed has ended" : "Waiting for the server");
        // Not at once: a server that refuses the feed and knows the log-in would be asked without end.
        if (isOver) again = setTimeout(start, 1000);
      },
    );
  };
  const pause = () => {
    clearTimeout(again);
    if (close) close();
    close = null;
  };
  const look = () => {
    if (document.hidden) pause();
    else if (!close) begin();
  };
  document.addEventListener("visibilitychange", look);
  stopFeed = () => {
    document.removeEventListener("visibilitychange", look);
    pause();
  };
  look();
}

/** The rows of a part of a snapshot, or why there are none. */
function part(of, made) {
  if (!of) return [];
  return of.error ? [refusal(of.error)] : made(of);
}

/** Statements that run without a plan of their own, as INSERT or VACUUM. */
function unplanned(now, sessions) {
  const planned = new Set(now.queries.filter((query) => !query.is_over).map((query) => String(query.pid)));
  return sessions
    .filter((row) => row.state === "active" && !planned.has(row.pid))
    .map((row) => ({
      pid: row.pid,
      text: row.query || "",
      elapsed_ms: Math.max(
        0,
        now.at_ms - Date.parse((row.query_start || "").replace(" ", "T").replace(/\+00$/, "Z")),
      ),
      waits: row.wait_event_type === "Lock" ? row.wait_event : null,
      is_over: false,
      fragments: null,
    }));
}

function toEditor(query) {
  return html("button", { type: "button", onclick: () => edit(query.text) }, "To the editor");
}

/** Puts statements that have ended into `over`, and returns those that run, with what they wait for. */
function running(now, over, sessions) {
  const waits = new Map(sessions.filter((row) => row.wait_event_type === "Lock").map((row) => [row.pid, row]));
  const run = [];
  for (const query of now.queries) {
    if (query.is_over) {
      over.set(query.number, query);
    } else {
      over.delete(query.number);
      run.push({ ...query, waits: waits.get(String(query.pid))?.wait_event });
    }
  }
  const end = (query) => query.began_us + query.elapsed_ms * 1000;
  const sorted = [...over.values()].sort((one, other) => end(other) - end(one));
  for (const query of sorted.slice(STATEMENTS_MAX)) over.delete(query.number);
  return { run, ended: sorted.slice(0, STATEMENTS_MAX) };
}

function overview(place) {
  const past = { commits: [], plans: [], lookUps: [] };
  const over = new Map();
  let last = null;
  let drawn = null;
  let figured = null;
  const figures = html("div", { class: "cards" });
  const statements = html("div", { id: "running" });
  const wholes = html("div");
  place.append(
    html("h1", {}, "Overview"),
    figures,
    html("h2", {}, "Running statements and the last that ended"),
    legend(),
    statements,
    html("h2", {}, "Devices"),
    wholes,
  );
  feed(["statements", "devices"], (now, changed) => {
    const span = last ? (now.at_ms - last.at_ms) / 1000 : 0;
    // Nobody has looked meanwhile.
    if (span > 5) for (const list of Object.values(past)) list.length = 0;
    const rate = (name) => (span > 0 ? Math.max(0, now.totals[name] - last.totals[name]) / span : 0);
    const [commits, plans, lookUps] = [rate("commits"), rate("plans"), rate("look_ups")];
    if (span > 0) {
      for (const [list, value] of [
        [past.commits, commits],
        [past.plans, plans],
        [past.lookUps, lookUps],
      ]) {
        list.push(value);
        if (list.length > HISTORY) list.shift();
      }
    }
    last = { at_ms: now.at_ms, totals: now.totals };
    const sessions = now.sessions.error ? [] : objects(now.sessions);
    const active = sessions.filter((row) => row.state === "active").length;
    const waiting = sessions.filter((row) => row.wait_event_type === "Lock").length;
    // On an idle server they are what they were.
    const figure = JSON.stringify([past, sessions.length, active, waiting]);
    if (figure !== figured) {
      const isDrawn = refresh(figures, [
        card(
          "Transactions and queries a second",
          `${Math.round(commits)} / ${Math.round(plans)}`,
          sparkline(
            past.commits,
            past.plans,
            "Commits a second, and dashed the planned queries a second, of the last two minutes",
          ),
          "commits; planned queries dashed",
        ),
        card(
          "Look-ups by key a second",
          String(Math.round(lookUps)),
          sparkline(past.lookUps, [], "Look-ups a second of the last two minutes"),
        ),
        card("Sessions", count(sessions.length), null, `${active} active, ${waiting} wait for locks`),
        card("Statements that run", count(active)),
      ]);
      figured = isDrawn ? figure : null;
    }
    const { run, ended } = running(now, over, sessions);
    const open = [...unplanned(now, sessions), ...run];
    const listed = [...open, ...ended].slice(0, STATEMENTS_MAX);
    const shown = listed.map((query) => query.number).join();
    // What has ended does not change.
    if (open.length || shown !== drawn) {
      const isDrawn = refresh(
        statements,
        listed.length
          ? listed.map((query) => statement(query, query.is_over ? toEditor(query) : stopButtons(query.pid)))
          : [html("p", { class: "soft" }, "None. Queries stay here that took 10 ms, or ran on a device.")],
      );
      drawn = isDrawn && !open.length ? shown : null;
    }
    return !changed.has("devices") || refresh(wholes, part(now.devices, deviceCards));
  });
}

function deviceCards(result) {
  return [
    html(
      "div",
      { class: "cards" },
      objects(result).map((device) =>
        html(
          "div",
          { class: "card" },
          html("span", { class: `tag ${device.kind === "embedded" ? "host" : "device"}` }, device.kind),
          " ",
          html("strong", {}, device.name),
          html("b", {}, device.state),
          device.error ? html("p", { class: "bad" }, device.error) : null,
          html("div", { class: "soft" }, `${count(device.runs)} runs, ${count(device.queue)} morsels wait`),
          html(
            "div",
            { class: "soft" },
            `${bytes(device.used_bytes)} used, `,
            `${bytes(device.free_memory_bytes)} of ${bytes(device.memory_bytes)} memory free`,
          ),
          html(
            "div",
            { class: "soft" },
            `${device.cores ?? "–"} cores; link ${milliseconds(device.round_trip_ms)}, `,
            `${bytes(device.link_bytes_per_second)}/s`,
          ),
        ),
      ),
    ),
  ];
}

function devices(place) {
  const cards = html("div");
  const rows = html("div");
  place.append(html("h1", {}, "Devices"), cards, html("h2", {}, "All figures"), rows);
  feed(["devices"], (now, changed) => {
    if (!changed.has("devices")) return true;
    const isDrawn = refresh(cards, part(now.devices, deviceCards));
    return (
      refresh(
        rows,
        part(now.devices, (result) => [table(result, "Attached devices")]),
      ) && isDrawn
    );
  });
}

const WAITS = "waits for ";

function locks(place) {
  const chains = html("div");
  const rows = html("div");
  place.append(
    html("h1", {}, "Locks"),
    html("h2", {}, "Who blocks whom"),
    chains,
    html("h2", {}, "All locks"),
    rows,
  );
  feed(["locks", "statements"], (now, changed) => {
    if (!["locks", "waits", "sessions"].some((name) => changed.has(name))) return true;
    const sessions = now.sessions.error ? [] : objects(now.sessions);
    const said = (pid) => {
      const row = sessions.find((row) => row.pid === pid);
      return row ? `${row.usename}: ${shortened(row.query || row.state || "", 100)}` : "";
    };
    const isDrawn = refresh(
      chains,
      part(now.waits, (result) => {
        const waits = objects(result);
        if (!waits.length) return [html("p", { class: "soft" }, "Nobody waits for a lock.")];
        return [
          html(
            "ul",
            { class: "blocked" },
            waits.map((wait) => {
              const pids = (wait.blocked_by || "").split(/[^0-9]+/).filter((pid) => pid);
              return html(
                "li",
                {},
                html("strong", {}, `Session ${wait.pid}`),
                ` ${WAITS}${wait.mode} (${wait.kind}${wait.table_name ? " of " + wait.table_name : ""}) `,
                html("code", {}, said(wait.pid)),
                pids.length
                  ? html(
                      "ul",
                      {},
                      pids.map((pid) => {
                        const what = html("code", {}, said(pid));
                        return html("li", {}, `blocked by session ${pid} `, what, " ", stopButtons(pid));
                      }),
                    )
                  : html("span", { class: "soft" }, " behind others that wait for it"),
              );
            }),
          ),
        ];
      }),
    );
    return (
      refresh(
        rows,
        part(now.locks, (result) => [table(result, `${count(result.rows.length)} locks`)]),
      ) && isDrawn
    );
  });
}

function sessions(place) {
  const rows = html("div");
  place.append(html("h1", {}, "Sessions"), rows);
  const columns = ["pid", "usename", "application_name", "client_addr", "state", "wait_event", "query_start"];
  feed(["statements"], (now, changed) => {
    if (!changed.has("sessions")) return true;
    return refresh(
      rows,
      part(now.sessions, (result) => [
        html(
          "div",
          { class: "scroll", tabindex: "0", role: "region", "aria-label": "Sessions" },
          html(
            "table",
            {},
            html("caption", {}, `${count(result.rows.length)} sessions`),
            html(
              "thead",
              {},
              html(
                "tr",
                {},
                [...columns, "query", ""].map((name) => html("th", { scope: "col" }, name || "\u00a0")),
              ),
            ),
            html(
              "tbody",
              {},
              objects(result).map((row) =>
                html(
                  "tr",
                  {},
                  columns.map((name) => html("td", {}, row[name] ?? html("span", { class: "null" }, "–"))),
                  html("td", { class: "wrap" }, shortened(row.query || "", 300)),
                  html("td", {}, stopButtons(row.pid)),
                ),
              ),
            ),
          ),
        ),
      ]),
    );
  });
}

const VIEWS = [
  ["tables", "Tables"],
  ["tablets", "Tablets"],
  ["result_sets", "Result sets"],
  ["statements", "Statistics of statements"],
  ["query_log", "Last queries"],
  ["fragments", "Fragments"],
  ["filter_history", "Filter history"],
  ["device_locks", "Device locks"],
  ["activity", "Activity"],
  ["settings", "Settings"],
];

function more(place, which) {
  const chosen = VIEWS.some(([name]) => name === which) ? which : "tables";
  const out = html("div", { "aria-live": "polite" });
  const choice = html(
    "select",
    {
      id: "which",
      onchange: () => {
        location.hash = `#more/${choice.value}`;
      },
    },
    VIEWS.map(([name, title]) => html("option", { value: name, selected: name === chosen }, title)),
  );
  const load = async () => {
    const mine = turn;
    try {
      const result = await view(chosen);
      if (mine === turn)
        out.replaceChildren(
          table(result, `${count(result.rows.length)} rows${result.is_truncated ? "; there are more" : ""}`),
        );
    } catch (error) {
      if (mine === turn) out.replaceChildren(refusal(error.error || { message: error.message }));
    }
  };
  place.append(
    html("h1", {}, "More"),
    html(
      "div",
      { class: "row" },
      html("label", { for: "which" }, "Show"),
      choice,
      html("button", { type: "button", onclick: load }, "Read again"),
    ),
    out,
  );
  load();
}

const SECTIONS = [
  ["overview", "Overview", overview],
  ["query", "Query", (place) => place.append(queryPage())],
  ["devices", "Devices", devices],
  ["locks", "Locks", locks],
  ["sessions", "Sessions", sessions],
  ["more", "More", more],
];

function show(moves) {
  stopFeed();
  stopFeed = () => {};
  turn += 1;
  const [name, rest] = location.hash.slice(1).split("/");
  const [at, title, made] = SECTIONS.find(([known]) => known === name) || SECTIONS[0];
  document.title = `${title} – Cleave console`;
  byId("sections").replaceChildren(
    html(
      "ul",
      {},
      SECTIONS.map(([known, text]) =>
        html("li", {}, html("a", { href: `#${known}`, "aria-current": known === at ? "page" : null }, text)),
      ),
    ),
  );
  const place = html("div");
  byId("main").replaceChildren(place);
  made(place, rest);
  say("");
  if (moves && !place.contains(document.activeElement)) byId("main").focus();
}

function logInPage(asksPassword) {
  stopFeed();
  byId("sections").hidden = true;
  byId("log-out").hidden = true;
  byId("user").textContent = "";
  const user = html("input", {
    id: "name",
    name: "user",
    autocomplete: "username",
    required: true,
    autocapitalize: "off",
    spellcheck: "false",
  });
  const password = html("input", {
    id: "password",
    name: "password",
    type: "password",
    autocomplete: "current-password",
  });
  const failed = html("div");
  const form = html(
    "form",
    {
      class: "log-in",
      method: "post",
      onsubmit: async (event) => {
        event.preventDefault();
        try {
          known(await logIn(user.value, asksPassword ? password.value : ""));
        } catch (error) {
          failed.replaceChildren(refusal(error.error || { message: error.message }));
          password.value = "";
          (asksPassword ? password : user).focus();
        }
      },
    },
    html("h1", {}, "Log in"),
    failed,
    html("label", { for: "name" }, "User"),
    user,
    asksPassword
      ? [html("label", { for: "password" }, "Password"), password]
      : html("p", { class: "soft" }, "This server asks nobody on this machine for a password."),
    html("button", { class: "main", type: "submit" }, "Log in"),
  );
  byId("main").replaceChildren(form);
  user.focus();
}

function known(who) {
  isIn(who.transaction);
  byId("database").textContent = who.database;
  byId("user").textContent = who.user;
  byId("sections").hidden = false;
  byId("log-out").hidden = false;
  show(false);
}

async function start() {
  try {
    known(await session());
  } catch (error) {
    if (error instanceof Refused && error.status === 401) {
      byId("database").textContent = error.rest.database || "";
      return logInPage(error.rest.asks_password !== false);
    }
    byId("main").replaceChildren(
      refusal(error.error || { message: error.message }),
      html("button", { type: "button", onclick: start }, "Try again"),
    );
  }
}

function theme() {
  const button = byId("theme");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const set = (name) => {
    if (name) document.documentElement.dataset.theme = name;
    else delete document.documentElement.dataset.theme;
    button.setAttribute("aria-pressed", String(name ? name === "dark" : dark.matches));
  };
  let stored = null;
  try {
    stored = localStorage.getItem("theme");
  } catch {
    /* The browser keeps nothing. */
  }
  set(["dark", "light"].includes(stored) ? stored : null);
  dark.addEventListener("change", () => set(document.documentElement.dataset.theme));
  button.addEventListener("click", () => {
    const next = button.getAttribute("aria-pressed") === "true" ? "light" : "dark";
    try {
      localStorage.setItem("theme", next);
    } catch {
      /* Likewise. */
    }
    set(next);
  });
}

theme();
window.addEventListener("hashchange", () => {
  if (!byId("sections").hidden) show(true);
});
window.addEventListener(LOGGED_OUT, start);
byId("log-out").addEventListener("click", async () => {
  await logOut().catch(() => {});
  // Nothing of it is left for whoever logs in next.
  location.reload();
});
start();
