// Elements of the page. Text from the server becomes text nodes and attribute values, never markup.

const SVG = "http://www.w3.org/2000/svg";

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(
    ...children
      .flat(Infinity)
      .filter((child) => child !== null && child !== undefined && child !== false)
      .map((child) => (child instanceof Node ? child : document.createTextNode(String(child)))),
  );
  return element;
}

/** An HTML element with attributes, listeners (`onclick`) and children. */
export function html(name, attributes, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/** The same of SVG. */
export function svg(name, attributes, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

export function byId(id) {
  return document.getElementById(id);
}

/** Tells people who hear the page, and those who see it, what has happened. */
export function say(text) {
  byId("status").textContent = text;
}

export function bytes(count) {
  if (count === null || count === undefined || Number.isNaN(Number(count))) return "–";
  let value = Number(count);
  for (const unit of ["B", "kB", "MB", "GB", "TB"]) {
    if (Math.abs(value) < 1000 || unit === "TB")
      return `${value < 10 && unit !== "B" ? value.toFixed(1) : Math.round(value)} ${unit}`;
    value /= 1000;
  }
  return "–";
}

export function milliseconds(value) {
  const ms = Number(value);
  if (value === null || value === undefined || Number.isNaN(ms)) return "–";
  if (ms < 10) return `${ms.toFixed(2)} ms`;
  if (ms < 10_000) return `${ms.toFixed(0)} ms`;
  return `${(ms / 1000).toFixed(1)} s`;
}

export function count(value) {
  return value === null || value === undefined ? "–" : Number(value).toLocaleString("en");
}

/** `text` with at most `length` characters. */
export function shortened(text, length) {
  // A letter has two units at most, and a value may have megabytes.
  const letters = [...String(text).slice(0, 2 * length + 2)];
  return letters.length > length ? letters.slice(0, length - 1).join("") + "…" : String(text);
}

/** A refusal of the server, as a person reads it. */
export function refusal(error) {
  const parts = [
    html("p", {}, html("strong", {}, `${error.sqlstate ? error.sqlstate + ": " : ""}${error.message}`)),
  ];
  if (error.detail) parts.push(html("p", {}, error.detail));
  if (error.hint) parts.push(html("p", { class: "soft" }, error.hint));
  return html("div", { class: "error", role: "alert" }, parts);
}

const NUMBERS = /^(smallint|integer|bigint|real|double precision|numeric|oid)$/;

export function isNumber(column) {
  return NUMBERS.test(column.type);
}

function cell(column, value) {
  if (value === null) return html("td", {}, html("span", { class: "null" }, "NULL"));
  const name = isNumber(column) ? "number" : value.length > 60 ? "long" : null;
  return html(
    "td",
    { class: name, title: value.length > 60 ? shortened(value, 2000) : null },
    shortened(value, 2000),
  );
}

/** A result as a table, `size` rows at a time. */
export function table(result, caption, size = 100) {
  const body = html("tbody");
  const where = html("span", { class: "soft", "aria-live": "polite" });
  let first = 0;
  const turn = (to) => {
    first = Math.max(0, Math.min(to, Math.max(0, result.rows.length - 1)));
    first -= first % size;
    const shown = result.rows.slice(first, first + size);
    body.replaceChildren(
      ...shown.map((row) =>
        html(
          "tr",
          {},
          row.map((value, at) => cell(result.columns[at], value)),
        ),
      ),
    );
    const last = first + shown.length;
    where.textContent = result.rows.length > size ? `rows ${first + 1} to ${last} of ${result.rows.length}` : "";
    before.disabled = first === 0;
    after.disabled = last >= result.rows.length;
  };
  const before = html("button", { type: "button", onclick: () => turn(first - size) }, "Previous rows");
  const after = html("button", { type: "button", onclick: () => turn(first + size) }, "Next rows");
  const head = html(
    "thead",
    {},
    html(
      "tr",
      {},
      result.columns.map((column) => html("th", { scope: "col" }, column.name, html("small", {}, column.type))),
    ),
  );
  turn(0);
  return html(
    "div",
    {},
    html(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
      html("table", {}, html("caption", {}, caption), head, body),
    ),
    result.rows.length > size ? html("div", { class: "row" }, before, after, where) : null,
  );
}

/** The rows of a result as objects by the names of columns. */
export function objects(result) {
  return result.rows.map((row) => Object.fromEntries(result.columns.map((column, at) => [column.name, row[at]])));
}
