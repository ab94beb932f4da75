// Which schedule is the fastest by the shapes of the layers, and by how much.

const NO_SHAPE = new Set(["run", "layer", "measured", "nodes", "ranks_per_node"]);
const MOST_CHOICES = 40;  // a column with more values is neither an axis nor a filter
/** The ranked rows of each layer, computed once. */
let rankedLayers = null;
function allRanked() {
  rankedLayers ??= layers.indices().map(ranked);
  return rankedLayers;
}
/** Returns a field of a layer. The rounding of rows is that of the times by which the layer is ranked. */
function shapeOf(layer, name) {
  const { time, list } = allRanked()[layer];
  if (name !== "capacity_rounding" || list.length === 0) return layers.get(layer, name);
  return rows.get(list[0], time === planned ? "planned_rounding" : name);
}
const choicesOf = (name) => ordered(layers.indices().map((layer) => shapeOf(layer, name)));
const varying = Object.keys(layers.columns).filter((name) => {
  const choices = NO_SHAPE.has(name) ? 0 : choicesOf(name).length;
  return choices > 1 && choices <= MOST_CHOICES;
});
const filterOf = (name) => byId(`filter-${name}`).value;
const passes = (layer) => varying.every((name) =>
  filterOf(name) === "" || String(shapeOf(layer, name)) === filterOf(name));
const chosenLayers = () => layers.indices().filter((layer) => allRanked()[layer].list.length > 1 && passes(layer));

function startWinners() {
  if (layers.rows < 2) return;
  const label = (name) => name.replaceAll("_", " ");
  const axis = (id, text, value) => html("label", {}, `${text} `, html("select", { id, onchange: drawWinners },
    ...varying.map((name) => html("option", { value: name, selected: name === value }, label(name)))));
  const filter = (name) => html("label", {}, `${label(name)} `, html("select", { id: `filter-${name}`,
    onchange: drawWinners }, html("option", { value: "" }, "any"),
  ...choicesOf(name).map((value) => html("option", {}, String(value)))));
  show("filters", axis("axis-x", "across", varying.includes("model_dim") ? "model_dim" : varying[0]),
    axis("axis-y", "down", varying.includes("seq") ? "seq" : varying.at(-1)), html("span", {}, "only layers with"),
    ...varying.map(filter), html("button", { onclick: () => {
      for (const name of varying) byId(`filter-${name}`).value = "";
      drawWinners();
    } }, "all layers"));
  byId("filters").hidden = varying.length === 0;
  const baselines = scheduleNames.filter((name) => BASELINES.includes(name));
  show("baseline", ...(baselines.length > 0 ? baselines : scheduleNames).map((name) => html("option", {}, name)));
  byId("baseline").addEventListener("change", drawWinners);
}

function countWinners(list) {
  const counts = new Map();
  for (const layer of list) {
    const name = scheduleOf(allRanked()[layer].list[0]);
    counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  return counts;
}

function drawMap(list) {
  if (varying.length === 0) return show("winner-map");
  const [across, down] = [byId("axis-x").value, byId("axis-y").value], xs = choicesOf(across);
  const ys = choicesOf(down), width = widthOf("winner-map"), left = 90, high = 30;
  const wide = Math.min(150, (width - left) / xs.length);
  const root = canvas(width, ys.length * high + 40, "winners by shape");
  const cells = new Map();
  for (const layer of list) {
    const key = `${shapeOf(layer, across)}|${shapeOf(layer, down)}`;
    cells.set(key, [...(cells.get(key) ?? []), layer]);
  }
  xs.forEach((x, i) => root.append(svg("text", { x: left + (i + 0.5) * wide, y: ys.length * high + 15,
    "text-anchor": "middle" }, x)));
  root.append(svg("text", { x: left, y: ys.length * high + 33 }, `${across.replaceAll("_", " ")}, by ` +
    `${down.replaceAll("_", " ")}`));
  ys.forEach((y, j) => {
    root.append(svg("text", { x: left - 8, y: j * high + 19, "text-anchor": "end" }, y));
    xs.forEach((x, i) => {
      const inside = cells.get(`${x}|${y}`);
      if (!inside) return;
      const counts = [...countWinners(inside)].sort((a, b) => b[1] - a[1]), cell = svg("g");
      let from = left + i * wide + 2;
      for (const [name, won] of counts) {
        const part = won / inside.length * (wide - 4);
        cell.append(svg("rect", { x: from, y: j * high + 3, width: part, height: high - 6,
          fill: scheduleColour(name), class: "schedule" }));
        if (part > 26) cell.append(svg("text", { style: `fill:${scheduleInk(name)}`, x: from + part / 2,
          y: j * high + 19, "text-anchor": "middle" }, won));
        from += part;
      }
      root.append(withTip(cell, () => [`${across} ${x}, ${down} ${y}: ${count(inside.length, "layer")}`,
        ...counts.map(([name, won]) => `${name} is the fastest of ${won}`)]));
    });
  });
  show("winner-map", root);
}

/** For each layer that has both, the baseline's time over the schedule's. */
function speedupsOf(list, name, baseline) {
  const found = [];
  for (const layer of list) {
    const { time, list: order } = allRanked()[layer], of = (which) => order.find((row) => scheduleOf(row) === which);
    if (of(name) !== undefined && of(baseline) !== undefined) found.push(time(of(baseline)) / time(of(name)));
  }
  return found;
}

function drawSpeedups(list) {
  const baseline = byId("baseline").value, width = widthOf("speedups"), narrow = width < 640;
  const left = narrow ? 12 : 128, right = width - (narrow ? 12 : 220), high = narrow ? 62 : 40;
  const lines = scheduleNames.filter((name) => name !== baseline)
    .map((name) => [name, speedupsOf(list, name, baseline)]).filter(([, found]) => found.length > 0)
    .sort(([, a], [, b]) => mean(b) - mean(a));
  const all = lines.flatMap(([, found]) => found);
  if (all.length === 0) return show("speedups", html("p", {}, `No layer has ${baseline} and another schedule.`));
  const low = Math.min(1, least(all)), top = Math.max(1.01, most(all));
  const x = linearScale(low, top, left, right), bins = 48;
  const root = canvas(width, lines.length * high + 24, "speedups");
  for (const tick of linearTicks(low, top, narrow ? 3 : 6))
    root.append(svg("line", { class: tick === 1 ? "split" : "grid", x1: x(tick), x2: x(tick), y1: 0,
      y2: lines.length * high }),
      svg("text", { x: x(tick), y: lines.length * high + 16, "text-anchor": "middle" }, `${digits(tick, 3)}x`));
  lines.forEach(([name, found], i) => {
    const counts = new Array(bins).fill(0), base = (i + 1) * high - 4;
    for (const value of found) ++counts[Math.min(bins - 1, Math.floor((value - low) / (top - low) * bins))];
    const highest = most(counts);
    counts.forEach((count, bin) => root.append(svg("rect", { x: left + bin * (right - left) / bins,
      y: base - count / highest * 32, width: (right - left) / bins - 0.5, height: count / highest * 32,
      fill: scheduleColour(name) })));
    const average = mean(found);
    const told = `mean ${times(average)} of ${found.length}`;
    const reach = `${times(quantile(found, 0))} to ${times(quantile(found, 1))}`;
    root.append(svg("line", { class: "measured", x1: x(average), x2: x(average), y1: base - 34, y2: base }));
    if (narrow) root.append(svg("text", { x: left, y: base - 40 }, `${name}: ${told}, ${reach}`));
    else root.append(svg("text", { x: left - 8, y: base - 8, "text-anchor": "end" }, name),
      svg("text", { x: right + 8, y: base - 14 }, told), svg("text", { x: right + 8, y: base }, reach));
  });
  show("speedups", root);
}

function drawWinners() {
  if (layers.rows < 2) return;
  const list = chosenLayers(), counts = [...countWinners(list)].sort((a, b) => b[1] - a[1]);
  const byMeasured = list.filter((layer) => allRanked()[layer].time === measured).length;
  const others = list.length - byMeasured, told = counts.map(([name, count]) => `${name} ${count}`).join(", ");
  byId("winner-text").textContent = `Of ${count(list.length, "layer")} (${byMeasured} by measured times, ` +
    `${others} by predicted ones) the fastest is: ${told || "none"}.`;
  show("winner-legend", ...counts.map(([name]) => swatch(scheduleColour(name), name)));
  drawMap(list);
  drawSpeedups(list);
}
