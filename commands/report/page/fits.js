// Operations beside the lines that are fitted to them; predictions beside measured times.

const fitOf = (run, series) => data.fits.find((fit) => fit.run === run && fit.series === series);

/** What a fit says of a size: its curve, whose outermost pieces go on beyond its ends (fits never begin below 0 nor
 *  fall); else start-up and slope. */
function fitSeconds(fit, size, starts) {
  const points = fit.points;
  if (points.length < 2) return fit.alpha_s * starts + fit.beta * size;
  let above = points.findIndex((point) => point[0] > size);
  if (above < 0) above = points.length - 1;
  const [low, high] = [points[Math.max(above, 1) - 1], points[Math.max(above, 1)]];
  return low[1] + (size - low[0]) / (high[0] - low[0]) * (high[1] - low[1]);
}

const seriesOf = (i) => `${operations.get(i, "series")} | ${runName(data.runs[operations.get(i, "run")])}`;
const operationsOf = (series) => operations.indices().filter((i) =>
  seriesOf(i) === series && operations.get(i, "status") === "ok" && operations.get(i, "median_s") !== null);

function range(values) {
  const low = least(values), high = most(values);
  return low < high ? { low: low / 1.15, high: high * 1.15 } : { low: low / 2, high: high * 2 };
}

const isOfBytes = (i) => operations.get(i, "unit") === "bytes";
const flopsText = (value) => withUnit(digits(value * 1e-9, 3), "GFLOP");
const sizeText = (i) => (isOfBytes(i) ? bytes : flopsText)(operations.get(i, "size"));
function sizeAxis(list) {
  const limits = range(list.map((i) => operations.get(i, "size")));
  if (!isOfBytes(list[0])) return { log: true, ...limits, text: flopsText, title: "FLOPs" };
  return { log: true, ...limits, text: bytes, title: "bytes", ticks: byteTicks(limits.low, limits.high) };
}

function drawBandwidth(list, fit) {
  const isBytes = isOfBytes(list[0]), size = (i) => operations.get(i, "size");
  // Bus bandwidth counts the bytes on a rank's link; if a record lacks that, all count their operation's bytes.
  const isBus = isBytes && list.every((i) => operations.get(i, "wire_bytes") !== null);
  const carried = (i) => (isBus ? operations.get(i, "wire_bytes") : size(i));
  const rate = (i, time) => carried(i) / time * 1e-9;
  const rates = list.map((i) => rate(i, operations.get(i, "median_s")));
  const chart = plane(sizeAxis(list),
    { low: 0, high: Math.max(...rates) * 1.1, text: (value) => digits(value, 3),
      title: isBus ? "bus bandwidth, GB/s" : isBytes ? "bytes / time, GB/s" : "GFLOP/s" }, "bandwidth");
  const ordered = [...list].sort((a, b) => size(a) - size(b));
  if (fit && !fit.unusable)
    chart.root.append(svg("path", { class: "line", d: ordered.map((i, n) => `${n ? "L" : "M"}${chart.x(size(i))},` +
      chart.y(rate(i, fitSeconds(fit, size(i), operations.get(i, "starts"))))).join("") }));
  for (const i of list) {
    const time = operations.get(i, "median_s"), dot = { cx: chart.x(size(i)), cy: chart.y(rate(i, time)), r: 4 };
    chart.root.append(withTip(svg("circle", { ...dot, class: "point" }), () => [operations.get(i, "key"),
      `${sizeText(i)} in ${seconds(time)}`, `${digits(rate(i, time), 4)} ${isBytes ? "GB/s" : "GFLOP/s"}`]));
  }
  show("bandwidth", chart.root);
}

const NAMED_RESIDUAL = 0.05, MOST_NAMED = 5;
function drawResiduals(list, fit) {
  const none = fit ? `No line: ${fit.unusable}` : "No line is fitted.";
  if (!fit || fit.unusable) return show("residuals", html("p", {}, none));
  const residual = (i) => operations.get(i, "median_s") /
    fitSeconds(fit, operations.get(i, "size"), operations.get(i, "starts")) - 1;
  const most = Math.max(0.001, ...list.map((i) => Math.abs(residual(i)))) * 1.2;
  const farthest = [...list].sort((a, b) => Math.abs(residual(b)) - Math.abs(residual(a))).slice(0, MOST_NAMED);
  const chart = plane(sizeAxis(list),
    { low: -most, high: most, text: (value) => `${digits(100 * value, 2)} %`, title: "measured over the line, - 1" }, "residuals");
  const label = labels(chart.box);
  for (const i of list) {
    const size = operations.get(i, "size"), far = Math.abs(residual(i)) > NAMED_RESIDUAL;
    const x = chart.x(size), y = chart.y(residual(i));
    chart.root.append(withTip(svg("circle", { cx: x, cy: y, r: 4, class: far ? "point far" : "point" }),
      () => [operations.get(i, "key"), percent(residual(i))]));
    const name = far && farthest.includes(i) ? label(x, y, sizeText(i)) : null;
    if (name) chart.root.append(name);
  }
  show("residuals", chart.root);
}

function drawOperations() {
  const series = byId("series").value, list = operationsOf(series);
  if (list.length === 0) return;
  const fit = fitOf(operations.get(list[0], "run"), operations.get(list[0], "series"));
  drawBandwidth(list, fit);
  drawResiduals(list, fit);
}

function startOperations() {
  const names = [...new Set(operations.indices().map(seriesOf))].filter((name) => operationsOf(name).length > 0);
  const shown = (name) => (runsShown.size > 1 ? name : name.split(" | ")[0]);
  show("series", ...names.map((name) => html("option", { value: name }, shown(name))));
  byId("series").addEventListener("change", drawOperations);
  const heads = ["line", "alpha", "beta, ps a unit", "r^2", "held-out", "weak or unusable"];
  show("fits", table(heads, data.fits.map((fit) => (fit.unusable
    ? [fit.series, "-", "-", "-", "-", fit.unusable]
    : [fit.series, seconds(fit.alpha_s), digits(fit.beta * 1e12, 4), fit.r_squared.toFixed(7),
      fit.held_out_error === null ? "-" : percent(fit.held_out_error), fit.weak]))));
}

// Rows that have both times. The page draws thousands of them, each as a small point.
const bothTimes = rowsOfLayer.flat().filter((row) => predicted(row) > 0 && measured(row) > 0);
const errorOf = (row) => measured(row) / predicted(row) - 1;
const nameOf = (row) => layers.get(rows.get(row, "layer"), "layer");

function drawAccuracy() {
  if (bothTimes.length === 0) return;
  const errors = bothTimes.map((row) => Math.abs(errorOf(row)));
  const worst = [...bothTimes].sort((a, b) => Math.abs(errorOf(b)) - Math.abs(errorOf(a)));
  const share = (value) => `${(100 * value).toFixed(2)} %`;
  byId("accuracy-text").textContent = `${bothTimes.length} runs: measured is off predicted by ` +
    `${share(median(errors))} in the median, ${share(Math.abs(errorOf(worst[0])))} at worst.`;
  const values = bothTimes.flatMap((row) => [predicted(row), measured(row)]);
  const both = { log: true, ...range(values), text: seconds };
  const chart = plane({ ...both, title: "predicted" }, { ...both, title: "measured" }, "scatter", 400);
  const { box } = chart, far = new Set(worst.slice(0, 5));
  chart.root.append(svg("path", { class: "split", d: `M${box.left},${box.bottom}L${box.right},${box.top}` }));
  const paths = new Map();
  for (const row of bothTimes) {  // one path per schedule, because thousands of circles would be slow
    const dot = `M${chart.x(predicted(row)).toFixed(1)},${chart.y(measured(row)).toFixed(1)}h0`;
    paths.set(scheduleOf(row), (paths.get(scheduleOf(row)) ?? "") + dot);
  }
  for (const [name, d] of paths)
    chart.root.append(svg("path", { d, class: "dots", stroke: scheduleColour(name),
      "stroke-width": bothTimes.length > 500 ? 3 : 7 }));
  for (const row of far) {
    const ring = svg("circle", { cx: chart.x(predicted(row)), cy: chart.y(measured(row)), r: 5, class: "ring" });
    chart.root.append(withTip(ring, () => [nameOf(row), scheduleOf(row), percent(errorOf(row))]));
  }
  const legend = [...paths.keys()].map((name) => swatch(scheduleColour(name), name));
  show("scatter", chart.root, html("div", { class: "legend" }, ...legend));
  const heads = ["layer", "schedule", "predicted", "measured", "error"];
  show("outliers", html("p", {}, "Farthest off (ringed: the first five)"), table(heads,
    worst.slice(0, 10).map((row) => [html("button", { class: "link", onclick: () => {
      choose(rows.get(row, "layer"));
      byId("answer").scrollIntoView();
    } }, nameOf(row)), scheduleOf(row), seconds(predicted(row)), seconds(measured(row)), percent(errorOf(row))])));
}
