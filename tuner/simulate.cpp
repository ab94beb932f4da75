#include "tuner/simulate.h"

#include <algorithm>
#include <cstdio>
#include <iterator>

#include "moe/base/config_files.h"
#include "moe/base/table.h"
#include "moe/cost/fluid_replay.h"
#include "moe/export/chrome_trace.h"
#include "moe/export/text_gantt.h"
#include "moe/plan/memory.h"
#include "moe/record/writer.h"
#include "tuner/results_json.h"
#include "tuner/simulate_model.h"
#include "tuner/timeline_records.h"
#include "tuner/tune.h"

namespace moe {
namespace {

struct Simulated {
  LayerResult result;
  Plan plan;
  Timeline timeline;
};

Simulated simulate_one(const Schedule& schedule, const LayerPricer& pricer, DegreeChoice degrees) {
  LayerSearch search;
  Simulated s{search.tune(schedule, pricer, degrees), {}, {}};
  s.plan = build_plan(schedule, pricer.shape(), s.result.decision);
  s.timeline = timeline_of(s.plan, price(pricer, s.plan), pricer.profile().contention);
  return s;
}

void print_text(const Case& shape, const Profile& profile, const std::vector<Simulated>& all) {
  fmt::print("{} on {} ({} nodes x {}), {}\n\n", describe(shape.layer), profile.name, profile.nodes,
             profile.ranks_per_node, name_of(shape.rounding));
  Table table({"schedule", "r_f", "r_b", "forward ms", "backward ms", "MoE f ms", "MoE b ms", "bound ms",
               "bound at r ms", "efficiency"});
  for (const Simulated& s : all) {
    const LayerResult& r = s.result;
    table.add({std::string(r.schedule), fmt::format("{}", r.decision.degree_forward),
               fmt::format("{}", r.decision.degree_backward), fmt::format("{:.4f}", r.forward_s * 1e3),
               fmt::format("{:.4f}", r.backward_s * 1e3), fmt::format("{:.4f}", r.moe_forward_s * 1e3),
               fmt::format("{:.4f}", r.moe_backward_s * 1e3), fmt::format("{:.4f}", r.bound.total_s() * 1e3),
               fmt::format("{:.4f}", r.degree_bound.total_s() * 1e3),
               fmt::format("{:.1f} %", 100 * r.bound.total_s() / r.total_s())});
  }
  fmt::print("{}", table.text());
  if (profile.memory_bytes) {
    const MemoryEstimate memory = layer_memory(shape);
    fmt::print("memory of a rank: {}, {}\n", human_bytes(memory.total()),
               misfit(memory, *profile.memory_bytes).value_or("fits"));
  }
  for (const Simulated& s : all)
    fmt::print("\n{}{} (binding lane: {} forward, {} backward)\n{}", s.result.schedule,
               s.result.decision.variant ? fmt::format(" = {}", s.result.decision.variant->name) : "",
               s.result.bound.forward_term, s.result.bound.backward_term,
               text_gantt(*s.plan.structure, s.timeline, 100));
}

void write_trace(const std::string& path, const std::vector<Simulated>& all) {
  std::vector<TraceGroup> groups;
  for (const Simulated& s : all)
    groups.push_back(
        {fmt::format("{} simulated", s.result.schedule), -1, &s.plan, s.timeline.start_s, s.timeline.end_s});
  write_chrome_trace(groups, path);
}

void write_records(const SimulateOptions& options, const LayerPricer& pricer, const std::vector<Simulated>& all) {
  const Case& shape = pricer.shape();
  const std::string& cluster = pricer.profile().name;
  const Fields parameters = parameters_of(shape, cluster, describe(shape.layer));
  std::vector<CaseRecord> records;
  for (const Simulated& s : all) records.push_back(timeline_record(s.result, s.plan, s.timeline, parameters));
  for (const Simulated& s : all)
    if (options.sweep_degrees)
      std::ranges::move(degree_records(find_schedule(s.result.schedule), pricer, parameters),
                        std::back_inserter(records));
  const std::string& layer = options.selection.layer_file;
  RecordWriter writer(options.out,
                      {options.asked, {pricer.profile().file, layer.empty() ? "" : find_config("layers", layer)}, {}});
  for (const CaseRecord& record : records)
    if (writer.find(record.key) == nullptr) writer.append(record);
  writer.end();
}

std::vector<NoiseRow> with_noise(const NoiseFlags& flags, const LayerPricer& pricer,
                                 const std::vector<Simulated>& all) {
  std::vector<NoiseRow> rows;
  if (!flags.any()) return rows;
  require<BadInput>(pricer.profile().contention.none(), "profile {}: contention is replayed for ranks alike only",
                    pricer.profile().name);
  for (const Simulated& s : all) {
    const RankReplay ranks(*s.plan.structure, s.plan.shape.parallel);
    rows.push_back({std::string(s.result.schedule), s.timeline.makespan_s,
                    ranks.replay(price(pricer, s.plan), noise_of(flags, s.plan.shape), flags.samples)});
  }
  return rows;
}

}  // namespace

void Refused::add(const Schedule& schedule, const Unsupported& error) {
  std::string& names = by_reason_[error.what()];
  names += (names.empty() ? "" : ", ") + std::string(schedule.name);
}

void Refused::report(bool nothing_left) const {
  if (nothing_left && by_reason_.size() == 1) throw Unsupported(by_reason_.begin()->first);
  if (nothing_left && !by_reason_.empty())
    throw Unsupported(fmt::format("{}: {}", by_reason_.begin()->second, by_reason_.begin()->first));
  for (const auto& [reason, names] : by_reason_) fmt::print(stderr, "moetune: {}: {}\n", names, reason);
}

int run_simulate(const SimulateOptions& options) {
  require<BadInput>(!options.sweep_degrees || !options.out.empty(),
                    "--sweep-degrees: found no --out, expected --out FILE with it");
  if (!options.model.model.empty() || options.model.layers || options.model.micro_batches > 1)
    return run_simulate_model(options);
  const Profile profile = find_profile(options.selection.cluster);
  const Case shape = chosen_case(options.selection, profile.nodes, profile.ranks_per_node);
  const LayerPricer pricer(profile, shape, {options.selection.nearest});
  std::vector<Simulated> all;
  Refused refused;
  for (const Schedule* schedule : chosen_schedules(options.selection)) {
    try {
      all.push_back(simulate_one(*schedule, pricer, options.selection.degrees));
    } catch (const Unsupported& error) {
      refused.add(*schedule, error);
    }
  }
  refused.report(all.empty());
  const auto noisy = with_noise(options.noise, pricer, all);
  if (!options.trace.empty()) write_trace(options.trace, all);
  if (!options.out.empty()) write_records(options, pricer, all);
  for (const std::string& note : pricer.notes()) fmt::print(stderr, "moetune: {}\n", note);
  if (!options.json) {
    print_text(shape, profile, all);
    if (!noisy.empty())
      fmt::print("\n{} ranks, {} samples\n{}", shape.parallel.ranks(), options.noise.samples, noise_table(noisy));
    return 0;
  }
  // One schedule: its object is the document; several: a list of them.
  Json documents = Json::array();
  for (const Simulated& s : all) {
    Json json = to_json(s.result);
    json["cluster"] = profile.name;
    json["layer"] = to_json(shape);
    json["notes"] = pricer.notes();
    add_timeline(json, s.plan, s.timeline);
    if (!noisy.empty()) json["noise"] = to_json(noisy[documents.size()]);
    documents.push_back(std::move(json));
  }
  const Json document = all.size() == 1 ? documents.front() : Json{{"schedules", documents}};
  fmt::print("{}\n", document.dump(1));
  return 0;
}

}  // namespace moe
