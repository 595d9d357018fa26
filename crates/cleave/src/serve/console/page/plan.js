// A plan as a graph: operators as boxes, the link drawn through it, and the candidate splits with their costs. It names
// things as the text of EXPLAIN does, and as crates/cleave-pictures does in pictures that nobody can click at.

import { html, svg, bytes, count, milliseconds, shortened } from "./document.js";

const [BOX, TALL, ACROSS, DOWN, MARGIN] = [300, 62, 26, 46, 16];
// Rows are said to be off if they are more than so many times as many as expected, or as few.
const OFF_BY = 2;

const plain = (name) => name.toLowerCase().replace(/[^a-z0-9]/g, "");

/** The first of `names` that `object` has, whatever the case and blanks of its own names. */
export function pick(object, ...names) {
  if (!object || typeof object !== "object") return undefined;
  const wanted = names.map(plain);
  const found = Object.entries(object).filter(([name]) => wanted.includes(plain(name)));
  found.sort(([one], [other]) => wanted.indexOf(plain(one)) - wanted.indexOf(plain(other)));
  return found.length ? found[0][1] : undefined;
}

/** The root of the answer of EXPLAIN (FORMAT JSON): `[{"Plan": …}]`. */
export function explained(answer) {
  const whole = Array.isArray(answer) ? answer[0] : answer;
  const plan = pick(whole, "Plan");
  return { whole: whole || {}, root: plan ? node(plan, "host") : null };
}

const DETAILS = [
  "Node Type",
  "Relation Name",
  "Index Name",
  "Filter",
  "Index Cond",
  "Hash Cond",
  "Group Key",
  "Sort Key",
];

function node(plan, above) {
  const device = pick(plan, "Device", "Device Name");
  const side = String(pick(plan, "Side", "Runs On") || (device ? "device" : above));
  const on = device || (side === "device" ? "device" : side);
  const details = DETAILS.map((name) => [name, pick(plan, name)])
    .filter(([, value]) => value !== undefined && value !== null && value !== "")
    .map(([name, value]) => `${name}: ${Array.isArray(value) ? value.join(", ") : value}`);
  const inputs = pick(plan, "Plans") || [];
  // It includes the nodes below.
  const whole = pick(plan, "Actual Total Time");
  const below = inputs.reduce((sum, input) => sum + (Number(pick(input, "Actual Total Time")) || 0), 0);
  return {
    name: String(pick(plan, "Description", "Node Type") || "?"),
    on: on === "host" ? "host" : String(on),
    details,
    rows: pick(plan, "Actual Rows"),
    expected: pick(plan, "Plan Rows"),
    time: whole === undefined ? undefined : Math.max(0, Number(whole) - below),
    spilled: pick(plan, "Spilled Bytes"),
    // Its figures are those of devices of which others took work.
    isPartial: pick(plan, "Is Partial") === true,
    cut: [pick(plan, "Cut"), pick(plan, "Cut Bytes"), pick(plan, "Cut Rows"), pick(plan, "Cut Without")],
    inputs: inputs.map((input) => node(input, on)),
  };
}

/** By how much rows are off, where that is much. */
function off(rows, expected) {
  const [actual, planned] = [Math.max(1, rows), Math.max(1, Math.round(expected))];
  const ratio = Math.max(actual / planned, planned / actual);
  if (!(ratio > OFF_BY)) return "";
  return ` (${ratio < 10 ? ratio.toFixed(1) : count(Math.round(ratio))}x ${actual > planned ? "more" : "fewer"})`;
}

function figures(of) {
  const said = [];
  if (of.rows !== undefined) said.push(`rows ${count(of.rows)}`);
  if (of.expected !== undefined) {
    const by = of.rows === undefined || of.isPartial ? "" : off(of.rows, of.expected);
    said.push(`expected ${count(Math.round(of.expected))}${by}`);
  }
  if (of.time !== undefined) said.push(milliseconds(of.time));
  if (of.spilled) said.push(`${bytes(of.spilled)} spilled`);
  return said.join(", ");
}

/** What crosses the link between two nodes. A node's cut is the one below it: that of `input` is another one. */
function crossing(at, input) {
  const { cut, expected: planned } = at.of;
  const [way, size, crossed, without] = cut;
  const actual = crossed === undefined ? at.of.rows : crossed;
  if (!way) return shortened(`rows from ${input.of.on === "host" ? "the host" : input.of.on}`, 48);
  const expected = planned === undefined ? undefined : `~${count(Math.round(planned))}`;
  const rows = actual === undefined ? expected : [count(actual), expected].filter(Boolean).join(" of ");
  const said = [way, rows && `rows ${rows}`, size && bytes(size), without];
  return shortened(said.filter(Boolean).join(", "), without ? 100 : 48);
}

/** Gives each node its place: leaves side by side, a parent above the middle of its inputs. */
function placed(of, depth, next) {
  const inputs = of.inputs.map((input) => placed(input, depth + 1, next));
  const x = inputs.length ? (inputs[0].x + inputs[inputs.length - 1].x) / 2 : next.x;
  if (!inputs.length) next.x += BOX + ACROSS;
  next.depth = Math.max(next.depth, depth);
  return { of, depth, x, inputs };
}

const top = (at) => MARGIN + at.depth * (TALL + DOWN);

function drawn(at, into) {
  const { of } = at;
  for (const input of at.inputs) {
    const crosses = input.of.on !== of.on;
    const [x1, y1, x2, y2] = [at.x + BOX / 2, top(at) + TALL, input.x + BOX / 2, top(input)];
    const middle = (y1 + y2) / 2;
    into.edges.push(
      svg("path", {
        class: crosses ? "edge link" : "edge",
        d: `M${x2} ${y2}C${x2} ${middle} ${x1} ${middle} ${x1} ${y1}`,
      }),
    );
    if (crosses) {
      into.edges.push(svg("line", { class: "border", x1: input.x, x2: input.x + BOX, y1: y2 - 9, y2: y2 - 9 }));
      into.edges.push(svg("text", { x: input.x, y: y2 - 14, class: "soft crossing" }, crossing(at, input)));
      into.links += 1;
    }
    drawn(input, into);
  }
  const kind = of.on === "host" ? "host" : "device";
  into.boxes.push(
    svg(
      "g",
      { class: `node ${kind}` },
      svg("title", {}, [of.name, `on ${of.on}`, ...of.details, figures(of)].filter(Boolean).join("\n")),
      svg("rect", { x: at.x, y: top(at), width: BOX, height: TALL, rx: 5 }),
      svg("text", { class: "name", x: at.x + 8, y: top(at) + 18 }, shortened(of.name, 40)),
      svg(
        "text",
        { class: "soft", x: at.x + 8, y: top(at) + 35 },
        shortened(`${of.on}${of.details.length ? "; " + of.details[0] : ""}`, 44),
      ),
      svg("text", { x: at.x + 8, y: top(at) + 52 }, shortened(figures(of), 48)),
    ),
  );
}

function asList(of) {
  return html(
    "li",
    {},
    html("strong", {}, of.name),
    " ",
    html("span", { class: `tag ${of.on === "host" ? "host" : "device"}` }, of.on),
    " ",
    figures(of),
    of.details.map((detail) => html("div", { class: "soft" }, shortened(detail, 400))),
    of.inputs.length ? html("ul", {}, of.inputs.map(asList)) : null,
  );
}

/** The plan below `root` as a drawing, and as a list for those who do not see it. */
export function graph(root) {
  const next = { x: MARGIN, depth: 0 };
  const at = placed(root, 0, next);
  const into = { edges: [], boxes: [], links: 0 };
  drawn(at, into);
  const [width, height] = [next.x - ACROSS + MARGIN, 2 * MARGIN + (next.depth + 1) * (TALL + DOWN) - DOWN];
  const label =
    `Plan with ${into.boxes.length} operators; rows cross a link in ${into.links} places. ` +
    "The list below has the same.";
  return [
    html(
      "ul",
      { class: "legend" },
      html("li", {}, html("span", { class: "tag host" }, "host"), " runs on the host"),
      html("li", {}, html("span", { class: "tag device" }, "device"), " runs where the pages lie"),
      html(
        "li",
        {},
        svg(
          "svg",
          { viewBox: "0 0 10 10", "aria-hidden": "true" },
          svg("rect", { y: 3, width: 10, height: 4, class: "f-link" }),
        ),
        "rows cross the link",
      ),
    ),
    html(
      "div",
      { class: "plan", tabindex: "0", role: "region", "aria-label": "Plan" },
      svg(
        "svg",
        { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label },
        into.edges,
        into.boxes,
      ),
    ),
    html("details", {}, html("summary", {}, "The plan as a list"), html("ul", { class: "tree" }, asList(root))),
  ];
}

/** The candidate splits with expected and measured times; `run` runs the statement with one of them. */
export function candidates(whole, measured, run) {
  const list = (pick(whole, "Candidates") || []).map((candidate) => ({
    split: String(pick(candidate, "Split", "Name") ?? "?"),
    finish: Number(
      pick(candidate, "Finish Time", "Finish", "finish_ms", "Predicted Time", "Predicted ms", "Total Time"),
    ),
    host: pick(candidate, "Host Time", "Host", "host_ms", "Host Busy"),
    device: pick(candidate, "Device Time", "Device", "device_ms", "Device Busy"),
    link: pick(candidate, "Link Bytes", "link_bytes"),
    chosen: pick(candidate, "Chosen") === true,
    fits: pick(candidate, "Fits") !== false,
  }));
  if (!list.length)
    return [
      html(
        "p",
        { class: "soft" },
        "Nothing was priced: the statement has no plan that could be divided.",
      ),
    ];
  const longest = Math.max(...list.map((one) => Math.max(one.finish || 0, measured.get(one.split) || 0)), 1e-9);
  const bar = (value, kind) => {
    const drawn = html("span", { class: `bar ${kind}` });
    drawn.style.width = `${(Math.max(0, value || 0) / longest) * 8}rem`;
    return drawn;
  };
  const head = ["Split", "Expected", "Measured", "", "Host", "Device", "Over the link", ""];
  return [
    html(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": "Candidate splits" },
      html(
        "table",
        {},
        html(
          "caption",
          {},
          "Candidate splits: what the planner expected of each, and what it took where you have run it",
        ),
        html(
          "thead",
          {},
          html(
            "tr",
            {},
            head.map((name) => html("th", { scope: "col" }, name || html("span", { class: "soft" }, "\u00a0"))),
          ),
        ),
        html(
          "tbody",
          {},
          list.map((one) =>
            html(
              "tr",
              {},
              html("td", {}, one.split, one.chosen ? " (chosen)" : "", one.fits ? "" : " (no room)"),
              html("td", { class: "number" }, milliseconds(one.finish)),
              html(
                "td",
                { class: "number" },
                measured.has(one.split) ? milliseconds(measured.get(one.split)) : "–",
              ),
              html(
                "td",
                {},
                bar(one.finish, "host"),
                measured.has(one.split) ? bar(measured.get(one.split), "device") : null,
              ),
              html("td", { class: "number" }, milliseconds(one.host)),
              html("td", { class: "number" }, milliseconds(one.device)),
              html("td", { class: "number" }, bytes(one.link)),
              html(
                "td",
                {},
                html(
                  "button",
                  { type: "button", "aria-label": `Run with split ${one.split}`, onclick: () => run(one.split) },
                  "Run",
                ),
              ),
            ),
          ),
        ),
      ),
    ),
  ];
}
