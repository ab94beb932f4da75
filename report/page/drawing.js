// Elements, numbers for people, axes.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}
// Text goes in as text alone, whatever a record holds.
const html = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
const byId = (id) => document.getElementById(id);
const show = (id, ...children) => byId(id).replaceChildren(...children);

const SMALLEST = 1e-12;
const withUnit = (text, unit) => `${text}\u00a0${unit}`;  // on one line
const digits = (value, count) => Number(value.toPrecision(count)).toString();
function seconds(value) {
  if (value === null || !Number.isFinite(value)) return "-";
  const size = Math.abs(value);
  if (size < SMALLEST) return "0";
  if (size < 1e-3) return withUnit(digits(value * 1e6, 4), "us");
  return size < 1 ? withUnit(digits(value * 1e3, 5), "ms") : withUnit(digits(value, 4), "s");
}
function bytes(value) {
  if (value === null || !Number.isFinite(value)) return "-";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; value >= 1024 && unit + 1 < units.length; ++unit) value /= 1024;
  return withUnit(digits(value, 4), units[unit]);
}
const percent = (share) =>
  (share === null ? "-" : withUnit(`${share >= 0 ? "+" : ""}${(100 * share).toFixed(2)}`, "%"));
const count = (number, one) => `${number} ${one}${number === 1 ? "" : "s"}`;
const times = (ratio) => (Number.isFinite(ratio) ? `${ratio.toFixed(3)}x` : "-");

// Colours models: Okabe and Ito's colours, which people tell apart whatever they see of red and green.
const PALETTE = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#8a7a00", "#7f7f7f"];

// Colours what tasks use: blue between nodes, green in them, orange the experts, grey the dense part, red gradients.
const KIND_COLOURS = {
  attention: "#8a8a8a", attention_dx: "#8a8a8a", attention_dw: "#6e6e6e",
  gate: "#a5a5a5", order: "#c0c0c0", i_order: "#c0c0c0",
  dispatch: "#0072b2", combine: "#56b4e9", exchange: "#3d93cf", sum: "#9fd3f2",
  allgather: "#009e73", reducescatter: "#66c5aa", allreduce: "#2fb08b", gather: "#4bbb9a",
  mp_allgather: "#a3b18a", mp_reducescatter: "#8a9a70", mp_allreduce: "#758560",
  tokens_allgather: "#b5bf9c", tokens_reducescatter: "#9dab84",
  shared_allgather: "#a3b18a", shared_reducescatter: "#8a9a70", shared_allreduce: "#758560",
  ffn: "#c08552", ffn_allgather: "#a3b18a", ffn_reducescatter: "#8a9a70", ffn_allreduce: "#758560",
  expert: "#e69f00", expert_dx: "#e69f00", expert_dw: "#b57c00", shared: "#f2c14e", gradient: "#d55e00",
  expert_gradient: "#eb9f6d", copy: "#cc79a7",
  home_copy: "#e0aac8",
  end_allgather: "#a3b18a", end_reducescatter: "#8a9a70", end_allreduce: "#758560", softmax_sums: "#b5bf9c",
  weights: "#b8860b", expert_weights: "#d9b45c", stage_weights: "#c9a23f", stage_gradient: "#b34700",
  tied_gradient: "#c25f1f",
  squares: "#7a6a8a", norm: "#a08fb5", optimizer: "#8a7a00",
};
const kindColour = (kind) => (Object.hasOwn(KIND_COLOURS, kind) ? KIND_COLOURS[kind] : "#c0a8b8");
const KIND_LETTERS = { dispatch: "D", allgather: "G", expert: "E", expert_dx: "E", expert_dw: "Y",
  attention_dx: "attention", attention_dw: "Y", reducescatter: "S", combine: "C", gradient: "g", attention: "attention",
  gate: "gate", shared: "shared", ffn: "ffn",
  copy: "copy", exchange: "X", gather: "H", sum: "+", allreduce: "R" };
const kindText = (kind) => kind.replaceAll("_", " ");

/** Ticks at 1, 2 or 5 times a power of ten. */
function linearTicks(low, high, count) {
  const raw = (high - low) / count, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= raw);
  const ticks = [];
  for (let i = Math.ceil(low / step); i * step <= high * (1 + 1e-12); ++i) ticks.push(i * step);
  return ticks;
}
function logTicks(low, high) {
  const ticks = [];
  for (let power = Math.ceil(Math.log10(low) - 1e-9); 10 ** power <= high * 1.000001; ++power) ticks.push(10 ** power);
  return ticks.length > 1 ? ticks : linearTicks(low, high, 4);
}
/** Powers of two, at most six of them. */
function byteTicks(low, high) {
  const first = Math.ceil(Math.log2(low)), last = Math.floor(Math.log2(high)), step = Math.ceil((last - first + 1) / 6);
  const ticks = [];
  for (let power = first; power <= last; power += step) ticks.push(2 ** power);
  return ticks;
}
const linearScale = (low, high, from, to) => (value) => from + (value - low) / (high - low || 1) * (to - from);
function logScale(low, high, from, to) {
  const scale = linearScale(Math.log(low), Math.log(high), from, to);
  return (value) => scale(Math.log(value));
}

/** A picture, never larger than it was drawn: on paper the page may be wider. */
const canvas = (width, height, label, role = "img") => svg("svg", { viewBox: `0 0 ${width} ${height}`, role,
  "aria-label": label, style: `max-width:${width}px` });

/** A chart's plane, with axes: `x` and `y` are {low, high, log, text, title}. */
function plane(x, y, width = 480, height = 300) {
  const box = { left: 76, right: width - 12, top: 12, bottom: height - 40 };
  const scaleX = (x.log ? logScale : linearScale)(x.low, x.high, box.left, box.right);
  const scaleY = (y.log ? logScale : linearScale)(y.low, y.high, box.bottom, box.top);
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${y.title} by ${x.title}` });
  for (const tick of x.ticks ?? (x.log ? logTicks(x.low, x.high) : linearTicks(x.low, x.high, 6))) {
    root.append(svg("line", { class: "grid", x1: scaleX(tick), x2: scaleX(tick), y1: box.top, y2: box.bottom }),
      svg("text", { x: scaleX(tick), y: box.bottom + 14, "text-anchor": "middle" }, x.text(tick)));
  }
  for (const tick of y.ticks ?? (y.log ? logTicks(y.low, y.high) : linearTicks(y.low, y.high, 5))) {
    root.append(svg("line", { class: "grid", x1: box.left, x2: box.right, y1: scaleY(tick), y2: scaleY(tick) }),
      svg("text", { x: box.left - 5, y: scaleY(tick) + 4, "text-anchor": "end" }, y.text(tick)));
  }
  root.append(svg("text", { x: (box.left + box.right) / 2, y: height - 6, "text-anchor": "middle" }, x.title),
    svg("text", { transform: `translate(12 ${(box.top + box.bottom) / 2}) rotate(-90)`, "text-anchor": "middle" },
      y.title));
  return { root, box, x: scaleX, y: scaleY };
}

/** A table of HTML: `heads` are texts, cells texts or elements. */
function table(heads, lines) {
  return html("div", { class: "wide" }, html("table", {},
    html("thead", {}, html("tr", {}, ...heads.map((head) => html("th", {}, head)))),
    html("tbody", {}, ...lines.map((line) => html("tr", {}, ...line.map((cell) => html("td", {}, cell)))))));
}
const swatch = (colour, text) => html("span", { class: "swatch" }, html("i", { style: `background:${colour}` }), text);

/** What stands beside the pointer while it is over an element. */
function withTip(element, lines) {
  const tip = byId("tip");
  element.addEventListener("pointermove", (event) => {
    tip.replaceChildren(...lines().map((line) => html("div", {}, line)));
    tip.hidden = false;
    const left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
    const below = event.clientY + 16 + tip.offsetHeight < innerHeight;
    tip.style.left = `${Math.max(4, left)}px`;
    tip.style.top = `${below ? event.clientY + 16 : event.clientY - tip.offsetHeight - 10}px`;
  });
  element.addEventListener("pointerleave", () => { tip.hidden = true; });
  return element;
}

/** Widths follow the page's: a chart is drawn as wide as its place. */
const widthOf = (id) => Math.max(300, Math.round(byId(id).clientWidth || 900));
