// The timeline of a statement: for each of its fragments, what host, device and link did when.

import { html, svg, bytes, count, milliseconds, shortened } from "./document.js";

const LANES = [
  ["host", "host works", "f-host"],
  ["wait", "host waits", "f-wait"],
  ["device", "device works", "f-device"],
  ["stall", "device stalls", "f-stall"],
  ["link", "link", "f-link"],
];
const [LEFT, RIGHT, LANE, GAP, HEAD] = [92, 12, 13, 4, 6];
const WIDTH_MAX = 640;

/** `columns` shares of a strip, each between 0 and 1, of `full` amounts a microsecond. */
function spread(strip, width, columns, full) {
  const shares = new Array(columns).fill(0);
  if (!strip) return shares;
  strip.amounts.forEach((amount, at) => {
    if (width >= strip.width_us) {
      const column = Math.floor(((at + 0.5) * strip.width_us) / width);
      if (column < columns) shares[column] += amount / (width * full);
      return;
    }
    const from = Math.floor((at * strip.width_us) / width);
    const to = Math.max(from + 1, Math.round(((at + 1) * strip.width_us) / width));
    for (let column = from; column < Math.min(to, columns); column += 1) {
      shares[column] = Math.max(shares[column], amount / (strip.width_us * full));
    }
  });
  return shares.map((share) => Math.min(1, share));
}

function lanes(fragment, length, columns) {
  const width = length / columns;
  const waited = spread(fragment.waited, width, columns, 1000);
  const known = fragment.waited ? (fragment.waited.amounts.length * fragment.waited.width_us) / width : 0;
  const work = fragment.device_work;
  const told = work ? null : fragment.progress;
  const peak = (strip) => Math.max(1, ...strip.amounts) / strip.width_us;
  return {
    host: waited.map((share, at) => (at < known ? 1 - share : 0)),
    wait: waited,
    device: work
      ? spread(work.worked, width, columns, 1000 * Math.max(1, work.partitions))
      : told && spread(told.morsels, width, columns, peak(told.morsels)),
    stall: work || told ? spread((work || told).stalled, width, columns, 1000) : null,
    link: spread(fragment.arrived, width, columns, peak(fragment.arrived)),
  };
}

function sum(strip) {
  return strip ? strip.amounts.reduce((total, amount) => total + amount, 0) : 0;
}

/** What the drawing of `fragment` says, in words. */
function words(fragment) {
  const work = fragment.device_work;
  const said = [`host waited ${milliseconds(sum(fragment.waited) / 1e6)}`];
  // What a fragment reports that changes rows are none of a result.
  if (fragment.rows !== null) said.push(`${count(fragment.rows)} rows`);
  said.push(`${bytes(sum(fragment.arrived))} over the link`);
  if (work) {
    said.push(`device worked ${milliseconds(sum(work.worked) / 1e6)} CPU`);
    said.push(`stalled ${milliseconds(sum(work.stalled) / 1e6)}`);
    said.push(`read ${bytes(work.media_bytes)}`);
  } else if (!fragment.refused) {
    const told = fragment.progress;
    if (told) {
      said.push(`${count(told.begun)} of ${count(told.kept)} morsels begun`);
      said.push(`stalled ${milliseconds(sum(told.stalled) / 1e6)} so far`);
    }
    if (!fragment.is_over) said.push("the device tells its CPU time at the end");
    else if (!told) said.push("the device told nothing");
  }
  return said.join(", ");
}

function fragmentPart(fragment, length) {
  const columns = 64;
  // As wide as there is room, so that its letters are as large as others.
  const width = Math.max(270, Math.min(WIDTH_MAX, window.innerWidth - 64));
  const drawn = lanes(fragment, length, columns);
  const [room, height] = [(width - LEFT - RIGHT) / columns, HEAD + LANES.length * (LANE + GAP) + 16];
  const parts = [];
  LANES.forEach(([key, name, style], at) => {
    const top = HEAD + at * (LANE + GAP);
    parts.push(svg("text", { x: LEFT - 8, y: top + LANE - 2, "text-anchor": "end", class: "soft" }, name));
    parts.push(svg("rect", { x: LEFT, y: top, width: width - LEFT - RIGHT, height: LANE, class: "lane" }));
    // What is drawn there by now are morsels, and no CPU time.
    if (key === "device" && !fragment.device_work && !fragment.is_over && !fragment.refused) {
      const open = width - LEFT - RIGHT - 2;
      parts.push(svg("rect", { x: LEFT + 1, y: top + 1, width: open, height: LANE - 2, class: "f-open" }));
    }
    if (!drawn[key]) return;
    drawn[key].forEach((share, column) => {
      if (share <= 0) return;
      const tall = Math.max(1.5, share * LANE);
      parts.push(
        svg("rect", {
          x: LEFT + column * room,
          y: top + LANE - tall,
          width: room + 0.3,
          height: tall,
          class: style,
        }),
      );
    });
  });
  parts.push(svg("text", { x: LEFT, y: height - 3, class: "soft" }, "0"));
  parts.push(
    svg(
      "text",
      { x: width - RIGHT, y: height - 3, "text-anchor": "end", class: "soft" },
      milliseconds(length / 1000),
    ),
  );
  const label = `Fragment ${fragment.number} over ${fragment.table} on ${fragment.device}: ${words(fragment)}`;
  return html(
    "div",
    { class: "timeline" },
    html(
      "p",
      { class: "soft" },
      html("span", { class: "tag device" }, fragment.device),
      ` ${fragment.mode}, fragment ${fragment.number} over `,
      html("code", {}, shortened(fragment.table, 80)),
      `: ${words(fragment)}`,
      fragment.refused ? `; the host ran it: ${fragment.refused}` : "",
    ),
    svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, parts),
  );
}

/** The timelines of a statement's fragments. */
export function timelines(query) {
  if (!query.fragments.length) return [html("p", { class: "soft" }, "Runs on the host alone.")];
  return query.fragments.map((fragment) => {
    const strips = [fragment.waited, fragment.arrived];
    if (fragment.device_work) strips.push(fragment.device_work.worked, fragment.device_work.stalled);
    else if (fragment.progress) strips.push(fragment.progress.morsels, fragment.progress.stalled);
    const length = Math.max(
      1,
      ...strips.map((strip) => strip.amounts.length * strip.width_us),
      fragment.is_over ? 0 : query.elapsed_ms * 1000,
    );
    return fragmentPart(fragment, length);
  });
}

/** One statement with its timelines. */
export function statement(query, buttons) {
  return html(
    "article",
    { class: query.is_over ? "query over" : "query" },
    html(
      "div",
      { class: "row" },
      html("strong", {}, query.is_over ? "Ended" : "Runs"),
      html("span", {}, milliseconds(query.elapsed_ms)),
      query.split ? html("span", { class: "tag" }, `split ${query.split}`) : null,
      html(
        "span",
        { class: "soft" },
        `session ${query.pid}${query.fragments && query.rows !== null ? `, ${count(query.rows)} rows` : ""}`,
      ),
      buttons,
    ),
    html("pre", { class: "statement" }, query.text),
    query.waits ? html("p", { class: "soft" }, `Waits for a lock (${query.waits}).`) : null,
    query.fragments ? timelines(query) : null,
  );
}

export function legend() {
  return html(
    "ul",
    { class: "legend", "aria-label": "Colours of timelines" },
    LANES.map(([, name, style]) =>
      html(
        "li",
        {},
        svg(
          "svg",
          { viewBox: "0 0 10 10", "aria-hidden": "true" },
          svg("rect", { width: 10, height: 10, class: style }),
        ),
        name,
      ),
    ),
  );
}
