// The map of degrees: every r_f and r_b for which the page has plans.

// Cividis, which looks alike with any colour vision: bright is fast.
const CIVIDIS = [[254, 232, 56], [211, 192, 100], [165, 156, 116], [125, 124, 120], [87, 93, 109], [42, 63, 109],
  [0, 34, 78]];
function cividis(share) {
  const at = Math.min(0.9999, Math.max(0, share)) * (CIVIDIS.length - 1), i = Math.floor(at);
  return CIVIDIS[i].map((low, c) => Math.round(low + (at - i) * (CIVIDIS[i + 1][c] - low)));
}

function mappedSchedule() {
  const schedules = replayOf.get(state.layer)?.schedules ?? [];
  return schedules.find((one) => one.schedule === byId("degree-schedule").value) ?? schedules[0];
}

function fillDegreeSchedules() {
  const schedules = replayOf.get(state.layer)?.schedules ?? [], select = byId("degree-schedule");
  const before = select.value;
  select.replaceChildren(...schedules.map((one) => html("option", {}, one.schedule)));
  const most = schedules.find((one) => one.schedule === before)
    ?? schedules.find((one) => one.forward.length > 1 && !one.equal_degrees) ?? schedules[0];
  if (most) select.value = most.schedule;
}

function cellsOf(schedule) {
  const times = (phase) => new Map(degreesIn(schedule, phase).map((r) =>
    [r, phaseSeconds(schedule, phase, r, state.scale)]));
  const forward = times("forward"), backward = times("backward"), cells = [];
  for (const [f, forwardTime] of forward)
    for (const [b, backwardTime] of backward)
      if (!schedule.equal_degrees || f === b) cells.push({ f, b, time: forwardTime + backwardTime });
  return cells;
}

function cellText(ratio, wide) {
  if (wide <= 30) return Math.round(100 * (ratio - 1));
  if (ratio === 1) return "best";
  return `+${(100 * (ratio - 1)).toFixed(ratio < 1.1 ? 1 : 0)}`;
}

function drawDegrees() {
  const schedule = mappedSchedule();
  byId("degrees").hidden = !schedule;
  if (!schedule) return;
  const cells = cellsOf(schedule), all = cells.map((cell) => cell.time), best = Math.min(...all);
  const most = Math.max(best * 1.02, quantile(all, 0.95));
  const columns = degreesIn(schedule, "forward"), lines = degreesIn(schedule, "backward");
  const wide = Math.min(44, (widthOf("degree-map") - 60) / columns.length), high = 24, left = 44;
  const [chosenF, chosenB] = chosenDegrees(schedule);
  const root = canvas(Math.max(230, left + columns.length * wide + 4), lines.length * high + 40, "times by degrees", "group");
  columns.forEach((f, i) => root.append(svg("text", { x: left + (i + 0.5) * wide, y: lines.length * high + 16,
    "text-anchor": "middle" }, f)));
  lines.forEach((b, i) => root.append(svg("text", { x: left - 6, y: (lines.length - 1 - i + 0.65) * high,
    "text-anchor": "end" }, b)));
  root.append(svg("text", { x: left, y: lines.length * high + 34 }, "r_f, chunks of the forward"),
    svg("text", { transform: `translate(12 ${lines.length * high}) rotate(-90)` }, "r_b"));
  for (const cell of cells) {
    const colour = cividis(Math.log(cell.time / best) / Math.log(most / best));
    const x = left + columns.indexOf(cell.f) * wide, y = (lines.length - 1 - lines.indexOf(cell.b)) * high;
    const chosen = cell.f === chosenF && cell.b === chosenB;
    const choose = () => {
      state.degrees.set(schedule.schedule, [cell.f, cell.b]);
      redrawReplays();
      byId("degree-map").querySelector(`[data-degrees="${cell.f}/${cell.b}"]`)?.focus();
    };
    const one = svg("g", { class: chosen ? "cell chosen" : "cell", "data-degrees": `${cell.f}/${cell.b}`,
      role: "button", tabindex: 0, "aria-pressed": String(chosen), onclick: choose,
      "aria-label": `r_f ${cell.f}, r_b ${cell.b}: ${seconds(cell.time)}`,
      onkeydown: (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        choose();
      } },
    svg("rect", { x: x + 1, y: y + 1, width: wide - 2, height: high - 2, fill: `rgb(${colour.join(" ")})` }),
    svg("text", { x: x + wide / 2, y: y + 16, "text-anchor": "middle", class: wide > 30 ? null : "small",
      style: `fill:${isBright(colour) ? "#000" : "#fff"}` },
      cellText(cell.time / best, wide)));
    root.append(withTip(one, () => [`r_f ${cell.f}, r_b ${cell.b}: ${seconds(cell.time)}`,
      `${percent(cell.time / best - 1)} above the best`]));
  }
  show("degree-map", root);
  const found = cells.find((cell) => cell.time === best);
  byId("degree-text").textContent = `${schedule.schedule}: best r_f ${found.f}, r_b ${found.b}, ${seconds(best)}; ` +
    `drawn r_f ${chosenF}, r_b ${chosenB}, ${seconds(totalSeconds(schedule, [chosenF, chosenB], state.scale))}. ` +
    "Cells: percent above the best." + (cells.length === 1 ? " This schedule has plans of these degrees alone." : "");
}

function startDegrees() {
  byId("degree-schedule").addEventListener("change", drawDegrees);
  byId("own-degrees").addEventListener("click", () => {
    state.degrees.clear();
    redrawReplays();
  });
}
