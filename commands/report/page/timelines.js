// Timelines of a layer's fastest schedules and baselines, replayed with the sliders' settings.

const SLIDERS = [
  ["inter", "bandwidth between nodes", 2], ["intra", "bandwidth inside nodes", 2], ["compute", "speed of computing", 2],
  ["alpha", "start-up of collectives", 3], ["batch", "samples a batch", 2]];
const SAME = 1e-6;  // relative difference by which two ways to add up may differ

const planOf = (schedule, phase, degree) => schedule[phase].find((plan) => plan.degree === degree);
const degreesIn = (schedule, phase) => schedule[phase].map((plan) => plan.degree).sort((a, b) => a - b);
const chosenDegrees = (schedule) => state.degrees.get(schedule.schedule)
  ?? [schedule.degree_forward, schedule.degree_backward];
const isChanged = () => Object.keys(AS_RECORDED).some((name) => state.scale[name] !== 1);

const contentionOf = new Map(data.replays.layers.flatMap((layer) =>
  layer.schedules.map((schedule) => [schedule, layer.contention])));
const networksOf = (schedule, plan) => plan.prices.map((price) => schedule.works[schedule.prices[price][0]][2]);

function replayPlan(schedule, plan, scale) {
  const seconds = plan.prices.map((price) => priceSeconds(schedule.prices[price], schedule.works, scale));
  const structure = data.replays.structures[plan.structure], contention = contentionOf.get(schedule);
  return slowsItself(structure, contention)
    ? fluidReplay(structure, seconds, networksOf(schedule, plan), contention) : replay(structure, seconds);
}
const phaseSeconds = (schedule, phase, degree, scale) =>
  replayPlan(schedule, planOf(schedule, phase, degree), scale).makespan;
const totalSeconds = (schedule, [forward, backward], scale) =>
  schedule.forwards * phaseSeconds(schedule, "forward", forward, scale)
    + phaseSeconds(schedule, "backward", backward, scale);

/** Returns the fastest degrees. */
function bestDegrees(schedule, scale) {
  const least = (degrees, time) => degrees.reduce((best, one) => (time(one) < time(best) ? one : best));
  if (schedule.equal_degrees) {
    const degree = least(degreesIn(schedule, "forward"), (r) => totalSeconds(schedule, [r, r], scale));
    return [degree, degree];
  }
  return ["forward", "backward"].map((phase) =>
    least(degreesIn(schedule, phase), (r) => phaseSeconds(schedule, phase, r, scale)));
}

/** Returns one schedule's tasks on its lanes: the forward, then the backward, which may repeat the forward first. */
function replayedLanes(schedule) {
  const degrees = chosenDegrees(schedule), tasks = [];
  let offset = 0, lanes = [], split = 0;
  [...Array(schedule.forwards).fill("forward"), "backward"].forEach((phase, i) => {
    const plan = planOf(schedule, phase, degrees[phase === "forward" ? 0 : 1]);
    const structure = data.replays.structures[plan.structure];
    const run = replayPlan(schedule, plan, state.scale), path = criticalPath(structure, run);
    lanes = structure.lanes;
    structure.lane.forEach((lane, task) => {
      const [work, size] = schedule.prices[plan.prices[task]];
      const [kind, , , unit] = schedule.works[work];
      tasks.push({ lane, kind, phase: i === 0 ? phase : "backward",
        chunk: structure.chunk[task], chunks: structure.chunks[task], start: offset + run.start[task],
        end: offset + run.end[task], critical: path.has(task), unit,
        size: size * (kind.endsWith("gradient") ? 1 : state.scale.batch) });
    });
    offset += run.makespan;
    if (i === 0) split = offset;
  });
  const title = `${schedule.schedule}, r_f ${degrees[0]}, r_b ${degrees[1]}, simulated`;
  return { title, row: schedule.row, lanes, tasks, split, end: offset,
    total: totalSeconds(schedule, degrees, state.scale) };
}

/** Parts of a model's predicted time that are not tasks of its plan. */
const BESIDE_PLANS = [["predicted_head_s", "the output projection"], ["predicted_expert_sums_s", "sums of experts"]];
function recordedLanes(row) {
  const stack = isStack(rows.get(row, "layer")), how = stack ? "planned again" : "as recorded";
  const group = lanesOfTasks(row, recordedTimeline.get(row), `${scheduleOf(row)}, simulated, ${how}`, "start_s",
    "end_s");
  const beside = stack ? BESIDE_PLANS.filter(([name]) => rows.get(row, name) > 0) : [];
  group.told = [seconds(group.end), ...beside.map(([name, text]) => `${seconds(rows.get(row, name))} of ${text}`)]
    .join(", without ");
  return group;
}

/** Returns a replay with the measured timeline, if nothing was changed. If the replay differs from the record's own
 * simulation, that is shown instead. */
function replayedGroups(schedule) {
  const replayed = replayedLanes(schedule), { row } = schedule;
  if (!measuredTimeline.has(row) || isChanged() || state.degrees.has(schedule.schedule)) return [replayed];
  const [found, simulated, difference] = measuredLanes(row);
  if (!simulated) return [found, replayed];
  return [found, Math.abs(replayed.end / simulated.end - 1) <= SAME ? replayed : simulated, difference];
}

function groupsOfLayer() {
  const replays = replayOf.get(state.layer), list = rowsOfLayer[state.layer];
  if (replays) return replays.schedules.flatMap(replayedGroups);
  return list.flatMap((row) => (measuredTimeline.has(row) ? measuredLanes(row)
    : recordedTimeline.has(row) ? [recordedLanes(row)] : []));
}

function taskLines(task) {
  const length = task.end - task.start;
  const name = `${task.phase} ${kindText(task.kind)}${task.chunks > 1 ? ` ${task.chunk + 1}/${task.chunks}` : ""}` +
    ((task.layer ?? null) === null ? "" : ` of layer ${task.layer}`);
  if (task.lines) return [name, ...task.lines];
  const lines = [name, `${seconds(length)}, from ${seconds(task.start)} to ${seconds(task.end)}`];
  if (task.size > 0 && task.unit === "bytes" && length > 0)
    lines.push(`${bytes(task.size)}, ${digits(task.size / length * 1e-9, 4)} GB/s`);
  if (task.size > 0 && task.unit === "flops" && length > 0)
    lines.push(`${digits(task.size * 1e-9, 4)} GFLOP, ${digits(task.size / length * 1e-12, 4)} TFLOP/s`);
  if (task.critical === true) lines.push("on the critical path");
  return lines;
}

const LANE = 18, LABELS = 84;
const titleHeight = (width) => (width < 640 ? 38 : 22);  // a narrow page shows the times on a line of their own
function drawGroup(root, group, top, x, width) {
  const total = measured(group.row) === null || isChanged() ? "" : `, measured ${seconds(measured(group.row))}`;
  const told = group.told ?? `${seconds(group.total)}${total}`, narrow = width < 640, TITLE = titleHeight(width);
  root.append(svg("text", { class: "title", x: 2, y: top + 15 }, narrow ? group.title : `${group.title}: ${told}`));
  if (narrow) root.append(svg("text", { x: 2, y: top + 31 }, told));
  group.lanes.forEach((name, lane) => {
    const y = top + TITLE + lane * LANE;
    root.append(svg("text", { x: LABELS - 6, y: y + 13, "text-anchor": "end" }, name),
      svg("line", { class: "grid", x1: LABELS, x2: width, y1: y + LANE - 1, y2: y + LANE - 1 }));
  });
  const drawn = new Map();  // by lane: the end of the last task narrower than a point
  for (const task of group.tasks) {
    const from = Math.max(LABELS, x(task.start)), to = Math.min(width, x(task.end));
    if (to < LABELS || from > width || task.end <= task.start) continue;
    if (to - from < 0.6) {  // draws one of the thousands that share a point
      if (from < (drawn.get(task.lane) ?? -1)) continue;
      drawn.set(task.lane, from + 0.6);
    }
    const y = top + TITLE + task.lane * LANE + 1, letter = KIND_LETTERS[task.kind] ?? "";
    const label = task.chunks > 1 ? `${letter}${task.chunk + 1}` : letter;
    const one = svg("g", { class: task.critical === false ? "task" : "task critical" },
      svg("rect", { x: from, y, width: Math.max(0.6, to - from), height: LANE - 4, fill: kindFill(task.kind),
        class: familyOf(task.kind) === 0 && to - from > 3 ? "dark" : null }));
    if (label && to - from > 6 + 6.5 * label.length)
      one.append(svg("text", { x: (from + to) / 2, y: y + 11, "text-anchor": "middle",
        style: task.critical === false ? null : `fill:${inkOn(KIND_FAMILIES[familyOf(task.kind)][1])}` }, label));
    root.append(withTip(one, () => taskLines(task)));
  }
  const bottom = top + TITLE + group.lanes.length * LANE;
  for (const [time, kind] of [[group.split, "split"], [group.end, "end"],
    [isChanged() ? null : measured(group.row), "measured"]])
    if (time !== null && x(time) >= LABELS && x(time) <= width)
      root.append(svg("line", { class: kind, x1: x(time), x2: x(time), y1: top + TITLE - 3, y2: bottom }));
  return bottom + 8;
}

function drawTimelines() {
  const groups = groupsOfLayer();
  drawSliders();
  byId("timeline-tools").hidden = groups.length === 0;
  if (groups.length === 0) {
    const others = data.replays.layers.map((one) => html("button", { onclick: () => choose(one.layer) },
      layers.get(one.layer, "layer")));
    show("timeline", html("p", {}, others.length > 0 ? "This page has timelines of these layers: " :
      `This page has no timelines. ${data.replays.notes.join("; ")}`, ...others));
    return show("kinds");
  }
  byId("critical-text").hidden = !groups.some((group) => group.tasks.some((task) => task.critical === true));
  const width = widthOf("timeline"), all = Math.max(...groups.map((group) => group.end)) * 1.01;
  state.all = all;
  const [from, to] = state.view ?? [0, all], x = linearScale(from, to, LABELS, width - 4);
  const height = groups.reduce((sum, group) => sum + titleHeight(width) + group.lanes.length * LANE + 8, 20);
  const root = canvas(width, height, "timelines of schedules");
  for (const tick of linearTicks(from, to, width / 110))
    root.append(svg("line", { class: "grid", x1: x(tick), x2: x(tick), y1: 14, y2: height }),
      svg("text", { x: x(tick), y: 11, "text-anchor": "middle" }, seconds(tick)));
  let top = 16;
  for (const group of groups) top = drawGroup(root, group, top, x, width);
  show("timeline", root);
  const families = new Set(groups.flatMap((group) => group.tasks.map((task) => familyOf(task.kind))));
  const kinds = new Set(groups.flatMap((group) => group.tasks.map((task) => task.kind)));
  const letters = [...kinds].filter((kind) => KIND_LETTERS[kind]?.length === 1)
    .map((kind) => `${KIND_LETTERS[kind]} ${kindText(kind)}`);
  show("kinds", ...[...families].sort().map(familySwatch),
    letters.length > 0 ? html("span", {}, letters.join(", ")) : null, html("span", {}, "| end of the forward"),
  ...(groups.some((group) => measured(group.row) !== null) ? [html("span", {}, "dashed: as measured")] : []));
}

function zoom(factor, at = 0.5) {
  const [from, to] = state.view ?? [0, state.all], span = Math.min(state.all, (to - from) * factor);
  const begin = Math.max(0, Math.min(state.all - span, from + (to - from - span) * at));
  state.view = factor === Infinity ? null : [begin, begin + span];
  drawTimelines();
}

function startTimelines() {
  byId("zoom-in").addEventListener("click", () => zoom(0.5));
  byId("zoom-out").addEventListener("click", () => zoom(2));
  byId("zoom-all").addEventListener("click", () => zoom(Infinity));
  const place = byId("timeline");
  const share = (event) => (event.clientX - place.getBoundingClientRect().left - LABELS) / (place.clientWidth - LABELS);
  place.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, share(event));
  }, { passive: false });
  let held = null;
  place.addEventListener("pointerdown", (event) => { if (state.view) held = { at: share(event), view: state.view }; });
  for (const end of ["pointerup", "pointercancel"]) addEventListener(end, () => { held = null; });
  addEventListener("pointermove", (event) => {
    if (!held) return;
    const [from, to] = held.view, move = (held.at - share(event)) * (to - from);
    const begin = Math.max(0, Math.min(state.all - (to - from), from + move));
    state.view = [begin, begin + to - from];
    drawTimelines();
  });
}
