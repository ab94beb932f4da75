// What is chosen, and what is drawn anew when that changes.

const state = { layer: 0, scale: { ...AS_RECORDED }, degrees: new Map(), view: null, all: 1 };

function redrawReplays() {
  drawTimelines();
  drawDegrees();
}

const SHOWN_SHAPE = ["layers", "micro_batches", "batch", "seq", "model_dim", "hidden",
  "shared_hidden", "heads", "experts", "top_k", "node_limit", "capacity_factor", "ffn"];
function redrawLayer() {
  byId("layer").value = String(state.layer);
  byId("shape").textContent = [["cluster", layers.get(state.layer, "cluster")], ...SHOWN_SHAPE.map((name) =>
    [name, layers.get(state.layer, name)])].filter(([, value]) => value !== null)
    .map(([name, value]) => `${name.replaceAll("_", " ")} ${value}`).join(", ");
  drawAnswer();
  drawBars();
  fillDegreeSchedules();
  redrawReplays();
  drawMemory();
}

function choose(layer) {
  state.layer = layer;
  state.degrees.clear();
  state.view = null;
  redrawLayer();
}

function startPicker() {
  const option = (layer) => html("option", { value: layer }, layers.get(layer, "layer") +
    (data.runs.length > 1 ? ` | ${data.runs[layers.get(layer, "run")].file}` : ""));
  const withReplay = layers.indices().filter((layer) => replayOf.has(layer));
  const others = layers.indices().filter((layer) => !replayOf.has(layer));
  const order = [...withReplay, ...others];
  if (others.length === 0) show("layer", ...order.map(option));
  else show("layer", html("optgroup", { label: "with timelines" }, ...withReplay.map(option)),
    html("optgroup", { label: "others" }, ...others.map(option)));
  byId("layer").addEventListener("change", (event) => choose(Number(event.target.value)));
  const step = (by) => choose(order[(order.indexOf(state.layer) + by + order.length) % order.length]);
  byId("previous").addEventListener("click", () => step(-1));
  byId("next").addEventListener("click", () => step(1));
  state.layer = order[0] ?? 0;
}

/** Hides sections that these records have nothing for, and lists the others. */
function startSections() {
  const has = { layer: layers.rows > 0, layers: layers.rows > 1, operations: operations.rows > 0,
    measured: bothTimes.length > 0, memory: replayOf.size > 0, models: data.models.length > 0,
    pairs: data.pairs.length > 0, published: published.rows > 0,
    warnings: data.warnings.length + data.replays.notes.length > 0, runs: true };
  byId("picker").hidden = layers.rows === 0;
  for (const section of document.querySelectorAll("main > section")) {
    section.hidden = !has[section.dataset.of];
    section.prepend(html("h2", {}, section.dataset.title));
    if (!section.hidden) byId("contents").append(html("a", { href: `#${section.id}` }, section.dataset.title));
  }
  return has;
}

function startHead() {
  const files = data.runs.map((run) => run.file).join(", ");
  document.title = `moetune: ${files}`;
  const held = [[layers.rows, "layer"], [rows.rows, "schedule of a layer", "schedules of layers"],
    [operations.rows, "operation"], [data.models.length, "model"], [published.rows, "published figure"]];
  byId("about").textContent = `${data.made_by}. ${held.filter(([number]) => number > 0).map(([number, one, many]) =>
    (many && number !== 1 ? `${number} ${many}` : count(number, one))).join(", ")}. Records: ${files}.`;
  const emulated = data.runs.filter((run) => run.emulated).map((run) => run.file);
  byId("emulated").hidden = emulated.length === 0;
  byId("emulated").textContent = `EMULATED: the measured times of ${emulated.join(", ")} are of threads that are ` +
    "paced by a cluster's model. They test order, executor and prediction. They are no times of that hardware.";
}

// What is below the first screen is drawn after that was painted.
function drawBelow(has) {
  if (has.layers) startWinners(), drawWinners();
  if (has.operations) startOperations(), drawOperations();
  if (has.measured) drawAccuracy();
  if (has.models) drawModels();
  if (has.pairs) drawPairs();
  drawWarnings();
  if (has.published) drawPublished();
  drawRuns(has);
  document.body.dataset.ready = "yes";
}

function start() {
  startHead();
  const has = startSections();
  if (has.layer) {
    startPicker();
    startSliders();
    startTimelines();
    startDegrees();
    redrawLayer();
  } else {
    byId("memory").hidden = true;
  }
  setTimeout(() => drawBelow(has), 0);
  addEventListener("beforeprint", () => {
    for (const folded of document.querySelectorAll("details")) folded.open = true;
  });
  let waiting = 0;
  addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      if (has.layer) redrawLayer();
      if (has.layers) drawWinners();
    }, 120);
  });
}
start();
