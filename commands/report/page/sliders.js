// What-if sliders that change the times of tasks, and the schedule that is best then.

function startSliders() {
  const lines = SLIDERS.map(([name, text, most]) => {
    const shown = html("output", { id: `${name}-value` }, "x 1");
    const input = html("input", { type: "range", id: `slider-${name}`, min: -most, max: most, step: 0.05, value: 0,
      oninput: () => {
        state.scale[name] = 2 ** Number(input.value);
        redrawReplays();
      } });
    return html("label", {}, `${text} `, shown, input);
  });
  show("sliders", ...lines, html("button", { id: "reset", onclick: resetSliders }, "as recorded"));
}

function resetSliders() {
  state.scale = { ...AS_RECORDED };
  for (const [name] of SLIDERS) byId(`slider-${name}`).value = 0;
  redrawReplays();
}

function replaySource(replays) {
  const source = sourceOfTasks(rowsOfLayer[state.layer]);
  if (isStack(state.layer) && rowsOfLayer[state.layer].some((row) => recordedTimeline.has(row)))
    return `${source} Whole plans, made again from the records; a lane of a pipeline stage begins with its number.`;
  if (!replays) return source;
  return `${source} Replayed in this page from plans, priced by the profile ${replays.profile} (${replays.source.replace(/\.$/, "")}).` +
    (replays.contention ? " Lanes slow each other while they run side by side, and their tasks are drawn so." : "");
}

function whatIfLines(replays) {
  return replays.schedules.map((schedule) => {
    const own = [schedule.degree_forward, schedule.degree_backward], best = bestDegrees(schedule, state.scale);
    return { schedule, own, best, before: totalSeconds(schedule, own, AS_RECORDED),
      now: totalSeconds(schedule, own, state.scale), least: totalSeconds(schedule, best, state.scale) };
  }).sort((a, b) => a.least - b.least);
}

function drawSliders() {
  const replays = replayOf.get(state.layer);
  byId("sliders").hidden = byId("what-if").hidden = byId("replay-notes").hidden = !replays;
  byId("replay-source").textContent = replaySource(replays);
  if (!replays) return;
  for (const [name] of SLIDERS) byId(`${name}-value`).textContent = `x ${state.scale[name].toFixed(2)}`;
  const lines = whatIfLines(replays), { time } = ranked(state.layer);
  const recorded = (schedule) => foretold(schedule.row, time);
  show("replay-notes", ...lines.filter(({ schedule, before }) => recorded(schedule) > 0 &&
    Math.abs(before / recorded(schedule) - 1) > SAME)
    .map(({ schedule, before }) => html("p", {}, `${schedule.schedule}: replayed ${seconds(before)}, recorded ` +
      `${seconds(recorded(schedule))} (${percent(before / recorded(schedule) - 1)}): decided or priced by what the ` +
      "record does not hold.")));
  const slowest = lines.find(({ schedule }) => schedule.schedule === "tutel") ?? lines.at(-1);
  const heads = ["schedule", "recorded", "replayed", "with the sliders", "best r_f, r_b then", "takes",
    `over ${slowest.schedule.schedule}`];
  show("what-if", table(heads, lines.map(({ schedule, own, best, before, now, least }) => [schedule.schedule,
    `${seconds(recorded(schedule))} (${own.join("/")})`, seconds(before), seconds(now), best.join("/"),
    seconds(least), times(slowest.least / least)])));
}
