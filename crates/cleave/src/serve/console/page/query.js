// The SQL editor: runs statements, shows their rows, plans and timelines, and draws results.

import {
  html,
  svg,
  byId,
  say,
  refusal,
  table,
  objects,
  isNumber,
  milliseconds,
  count,
  shortened,
} from "./document.js";
import { post, view, Refused } from "./server.js";
import { pick, explained, graph, candidates } from "./plan.js";
import { statement, legend } from "./timeline.js";

const KEY_WORDS = (
  "select from where group by order having limit offset join left right full inner outer on using " +
  "insert into values update set delete create table index view drop alter explain analyze with as distinct union " +
  "all and or not null is in between like exists case when then else end count sum min max avg begin commit rollback " +
  "vacuum show"
).split(" ");
const CHART_ROWS_MAX = 200;

/** What was written, and what was measured of it, while the page is open. */
const state = { text: "", names: null, measured: new Map(), of: "", transaction: "idle" };

async function names() {
  if (state.names) return state.names;
  const known = await view("names").then(objects, () => []);
  const all = new Set(known.flatMap((row) => [row.table_name, row.column_name]).filter(Boolean));
  state.names = [...all].sort().concat(KEY_WORDS);
  return state.names;
}

/** Completes the word before the cursor from names of tables, columns and key words. */
function completed(area) {
  const list = html("ul", {
    id: "choices",
    class: "choices",
    role: "listbox",
    "aria-label": "Completions",
    hidden: true,
  });
  let [chosen, found] = [0, []];
  const word = () => /[\w"]*$/.exec(area.value.slice(0, area.selectionStart))[0];
  const close = () => {
    list.hidden = true;
    area.removeAttribute("aria-activedescendant");
  };
  const take = (name) => {
    const from = area.selectionStart - word().length;
    area.setRangeText(
      /^[a-z_][a-z0-9_]*$/.test(name) ? name : `"${name.replaceAll('"', '""')}"`,
      from,
      area.selectionStart,
      "end",
    );
    close();
    area.focus();
    area.dispatchEvent(new Event("input"));
  };
  const show = () => {
    list.replaceChildren(
      ...found.map((name, at) =>
        html(
          "li",
          {
            id: `choice-${at}`,
            role: "option",
            "aria-selected": String(at === chosen),
            onmousedown: (event) => {
              event.preventDefault();
              take(name);
            },
          },
          shortened(name, 60),
        ),
      ),
    );
    list.hidden = false;
    area.setAttribute("aria-activedescendant", `choice-${chosen}`);
    list.children[chosen].scrollIntoView({ block: "nearest" });
  };
  area.addEventListener("blur", close);
  area.addEventListener("input", close);
  area.addEventListener("keydown", async (event) => {
    if (event.key === " " && event.ctrlKey) {
      event.preventDefault();
      const begun = word().replace('"', "").toLowerCase();
      found = (await names()).filter((name) => name.toLowerCase().startsWith(begun)).slice(0, 30);
      chosen = 0;
      if (found.length) show();
      else say("Nothing to complete");
    } else if (!list.hidden && ["ArrowDown", "ArrowUp"].includes(event.key)) {
      event.preventDefault();
      chosen = (chosen + (event.key === "ArrowDown" ? 1 : found.length - 1)) % found.length;
      show();
    } else if (!list.hidden && event.key === "Enter" && !event.ctrlKey) {
      event.preventDefault();
      take(found[chosen]);
    } else if (!list.hidden && event.key === "Escape") {
      event.preventDefault();
      close();
    }
  });
  return list;
}

/** A result as bars, or as a line where it has many rows: the first number over the first column. */
function chart(result) {
  const value = result.columns.findIndex(
    (column, at) => isNumber(column) && (at > 0 || result.columns.length === 1),
  );
  const rows = result.rows.slice(0, CHART_ROWS_MAX);
  if (value < 0 || rows.length < 2)
    return html(
      "p",
      { class: "soft" },
      "A chart takes two rows with a number in them, and what it is of before it.",
    );
  const numbers = rows
    .map((row) => Number(row[value] ?? 0))
    .map((number) => (Number.isFinite(number) ? number : 0));
  const [least, most] = [Math.min(0, ...numbers), Math.max(0, ...numbers)];
  const [width, height, left, bottom] = [640, 220, 70, 28];
  const room = (width - left - 10) / rows.length;
  const y = (number) => 10 + ((most - number) / (most - least || 1)) * (height - 10 - bottom);
  const named = (at) => shortened(value > 0 ? (rows[at][0] ?? "NULL") : String(at + 1), 16);
  const marks =
    rows.length <= 50
      ? numbers.map((number, at) =>
          svg(
            "rect",
            {
              class: "f-host",
              x: left + at * room + 1,
              width: Math.max(1, room - 2),
              y: Math.min(y(number), y(0)),
              height: Math.max(1, Math.abs(y(number) - y(0))),
            },
            svg("title", {}, `${named(at)}: ${number}`),
          ),
        )
      : svg("polyline", {
          class: "line",
          points: numbers.map((number, at) => `${left + at * room},${y(number)}`).join(" "),
        });
  const range = `${rows.length} values from ${Math.min(...numbers)} to ${Math.max(...numbers)}`;
  const step = Math.ceil(rows.length / 8);
  const labels = rows
    .map((_, at) => at)
    .filter((at) => at % step === 0)
    .map((at) => svg("text", { class: "soft", x: left + at * room, y: height - 10 }, shortened(named(at), 10)));
  return html(
    "div",
    { class: "chart" },
    svg(
      "svg",
      {
        viewBox: `0 0 ${width} ${height}`,
        role: "img",
        "aria-label": `Chart of ${result.columns[value].name}: ${range}`,
      },
      svg("line", { class: "edge", x1: left, x2: width, y1: y(0), y2: y(0) }),
      marks,
      labels,
      svg("text", { class: "soft", x: left - 6, y: y(most) + 4, "text-anchor": "end" }, count(most)),
      svg(
        "text",
        { class: "soft", x: left - 6, y: y(least) + 4, "text-anchor": "end" },
        least < 0 ? count(least) : "0",
      ),
    ),
  );
}

function shownResult(result, number) {
  if (!result.columns) return html("p", {}, result.tag);
  const drawing = html("div");
  const button = html(
    "button",
    {
      type: "button",
      "aria-expanded": "false",
      onclick: () => {
        const opens = !drawing.hasChildNodes();
        drawing.replaceChildren(...(opens ? [chart(result)] : []));
        button.setAttribute("aria-expanded", String(opens));
      },
    },
    "Chart",
  );
  const more = result.is_truncated ? "; there are more, which the console does not show" : "";
  const rows = `${count(result.rows.length)} rows${more}`;
  return html(
    "div",
    {},
    table(result, `Result ${number}: ${rows}`),
    html("div", { class: "row" }, button),
    drawing,
  );
}

/** What a user should know besides the results of `answer`. */
function noticed(answer) {
  return (answer?.notices || []).map((notice) => html("p", { class: "bad", role: "alert" }, notice));
}

export function queryPage() {
  const area = html("textarea", {
    id: "sql",
    spellcheck: "false",
    autocapitalize: "off",
    autocomplete: "off",
    "aria-describedby": "keys",
    "aria-controls": "choices",
    "aria-autocomplete": "list",
    oninput: () => {
      state.text = area.value;
    },
  });
  area.value = state.text;
  const out = html("section", { id: "results", "aria-label": "Results" });
  const block = html("span", { class: "soft" });
  const buttons = [];
  const busy = (is) => {
    buttons.forEach((button) => {
      button.disabled = is;
    });
    stop.disabled = !is;
    out.setAttribute("aria-busy", String(is));
  };
  const told = (transaction) => {
    const words = { open: "a transaction is open", failed: "the transaction has failed: ROLLBACK ends it" };
    state.transaction = transaction || state.transaction;
    block.textContent = words[state.transaction] || "";
  };
  told(state.transaction);
  const asked = async (what, work) => {
    if (!area.value.trim()) return say("There is no statement");
    busy(true);
    say(`${what} …`);
    try {
      await work(area.value);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      const done = (error.rest?.results || []).map((result, at) => shownResult(result, at + 1));
      out.replaceChildren(...noticed(error.rest), ...done, refusal(error.error));
      told(error.rest?.transaction);
      place(error.error.position);
      say(`Failed: ${error.error.message}`);
    } finally {
      busy(false);
    }
  };
  const place = (position) => {
    if (!position) return;
    const at = [...area.value].slice(0, position - 1).join("").length;
    area.focus();
    area.setSelectionRange(at, at + 1);
  };
  const run = () =>
    asked("Running", async (sql) => {
      const answer = await post("/api/query", { sql });
      told(answer.transaction);
      out.replaceChildren(
        html("h2", {}, "Results"),
        ...noticed(answer),
        html("p", { class: "soft" }, `in ${milliseconds(answer.elapsed_ms)}`),
        ...answer.results.map((result, at) => shownResult(result, at + 1)),
      );
      say(`Done in ${milliseconds(answer.elapsed_ms)}`);
    });
  const explain = (analyze, split) =>
    asked(analyze ? "Running and measuring" : "Planning", async (sql) => {
      if (state.of !== sql) [state.of, state.measured] = [sql, new Map()];
      const answer = await post("/api/explain", { sql, analyze, split });
      told(answer.transaction);
      const { whole, root } = explained(answer.plan);
      if (analyze && split) state.measured.set(split, pick(whole, "Execution Time") ?? answer.elapsed_ms);
      out.replaceChildren(
        html("h2", {}, split ? `Plan with split ${split}` : "Plan"),
        ...(root ? graph(root) : [html("pre", {}, shortened(JSON.stringify(answer.plan, null, 1), 20_000))]),
        html("h2", {}, "Candidate splits"),
        ...candidates(whole, state.measured, (of) => explain(true, of)),
        ...(answer.query ? [html("h2", {}, "Timeline"), legend(), statement(answer.query)] : []),
      );
      say(`${analyze ? "Measured" : "Planned"} in ${milliseconds(answer.elapsed_ms)}`);
    });
  const stop = html(
    "button",
    { type: "button", disabled: true, onclick: () => post("/api/cancel").catch((error) => say(error.message)) },
    "Cancel",
  );
  buttons.push(
    html("button", { type: "button", class: "main", id: "run", onclick: run }, "Run"),
    html("button", { type: "button", id: "explain", onclick: () => explain(false) }, "Explain"),
    html("button", { type: "button", id: "analyze", onclick: () => explain(true) }, "Explain and run"),
  );
  area.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      run();
    }
  });
  return html(
    "div",
    {},
    html("h1", {}, "Query"),
    html("label", { for: "sql" }, "SQL"),
    html("div", { class: "editor" }, area, completed(area)),
    html(
      "p",
      { class: "soft", id: "keys" },
      "Ctrl and Enter runs it, Ctrl and Space completes a name. Tab leaves the field.",
    ),
    html("div", { class: "row" }, buttons, stop, block),
    out,
  );
}

/** Notes the state of the session's transaction, as the server says it. */
export function isIn(transaction) {
  state.transaction = transaction || "idle";
}

/** Puts `sql` into the editor and goes there. */
export function edit(sql) {
  state.text = sql;
  location.hash = "#query";
  byId("sql")?.focus();
}
