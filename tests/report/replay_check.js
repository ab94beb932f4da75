// usage: node replay_check.js REPLAY_JS < PLANS. Replays each plan as the page does and prints the worst difference
// from the simulator, relative to the plan's time.
const fs = require("fs");
const vm = require("vm");

const { replay, criticalPath } = vm.runInThisContext(
  `${fs.readFileSync(process.argv[2], "utf8")}; ({ replay, criticalPath })`);
let worst = 0, tasks = 0, plans = 0, gaps = 0;
for (const line of fs.readFileSync(0, "utf8").split("\n").filter(Boolean)) {
  const { structure, seconds, start_s, end_s, makespan_s } = JSON.parse(line);
  const found = replay(structure, seconds);
  const off = (value, expected) => {
    const difference = Math.abs(value - expected) / makespan_s;
    worst = Math.max(worst, Number.isFinite(difference) ? difference : Infinity);
  };
  if (found.end.length !== end_s.length) worst = Infinity;
  end_s.forEach((end, i) => off(found.end[i], end));
  start_s.forEach((start, i) => off(found.start[i], start));
  off(found.makespan, makespan_s);
  // The critical path has no gap: its tasks' times add up to all of it.
  let sum = 0;
  for (const task of criticalPath(structure, found)) sum += seconds[structure.class[task]];
  if (Math.abs(sum - makespan_s) > 1e-9 * makespan_s) ++gaps;
  tasks += end_s.length;
  ++plans;
}
console.log(JSON.stringify({ plans, tasks, worst, gaps }));
