// usage: node replay_check.js PAGE < PLANS, with PAGE the folder of the page's scripts. Replays each plan as the page does and prints the worst difference
// from the simulator, relative to the plan's time.
const fs = require("fs");
const vm = require("vm");

const script = (name) => fs.readFileSync(`${process.argv[2]}/${name}.js`, "utf8");
const { replay, criticalPath, slowsItself, fluidReplay } = vm.runInThisContext(
  `${script("replay")}\n${script("fluid")}; ({ replay, criticalPath, slowsItself, fluidReplay })`);
let worst = 0, tasks = 0, plans = 0, gaps = 0, slowed = 0;
for (const line of fs.readFileSync(0, "utf8").split("\n").filter(Boolean)) {
  const { structure, seconds, networks, contention, start_s, end_s, makespan_s } = JSON.parse(line);
  const fluid = slowsItself(structure, contention);
  const found = fluid ? fluidReplay(structure, seconds, networks, contention) : replay(structure, seconds);
  slowed += fluid && found.makespan > replay(structure, seconds).makespan * (1 + 1e-6);
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
  for (const task of criticalPath(structure, found)) sum += found.end[task] - found.start[task];
  if (Math.abs(sum - makespan_s) > 1e-9 * makespan_s) ++gaps;
  tasks += end_s.length;
  ++plans;
}
console.log(JSON.stringify({ plans, tasks, worst, gaps, slowed }));
