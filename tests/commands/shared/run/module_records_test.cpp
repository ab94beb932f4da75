// Sub-modules timed, fitted, and priced in a simulation by their own rows.
#include <gtest/gtest.h>
#include <map>
#include <numeric>

#include "commands/shared/run/op_records.h"
#include "moe/measure/modules/module_run.h"
#include "moe/prices/pricer.h"
#include "moe/schedule/schedule.h"

namespace moe::commands {
namespace {

// What simulate shows of a module's task is what its fitted row says of the layer's own FLOPs or bytes.
TEST(ModuleRecords, MeasuredAndFittedTheyPriceASimulation) {
  const std::vector<std::string> names{"attention", "gate:gshard", "order:tutel", "i-order:tutel", "expert:gpt"};
  const Target host = target_of("host", {});
  std::vector<measure::OpCase> cases;
  for (const measure::OpCase& c : measure::module_cases(names, host.cluster))
    if (!c.seq || *c.seq == 64) cases.push_back(c);
  std::vector<CaseRecord> records;
  std::vector<size_t> all(cases.size());
  std::iota(all.begin(), all.end(), 0);
  measure::OpSettings settings;
  settings.repetitions = 3;
  const auto check = [&](const measure::OpCase& c, const measure::OpResult& result) {
    records.push_back(record_of(c, result, host));
    EXPECT_EQ(records.back().status, CaseStatus::ok) << c.key() << ": " << records.back().reason;
  };
  measure::bench_ops(host.ranks, cases, settings, {check}, all);
  ASSERT_EQ(records.size(), 2 * 8 * names.size());
  Profile profile = fit_profile(records, "modules", "measured").profile;
  ASSERT_EQ(profile.modules.size(), 2 * names.size());
  std::map<std::pair<std::string, Phase>, const ModuleRow*> rows;
  for (const ModuleRow& row : profile.modules) {
    EXPECT_EQ(row.beta_s_per_byte > 0, is_priced_by_byte(row.name)) << row.name;
    EXPECT_TRUE(row.r_squared && row.held_out_error && row.range) << row.name;
    rows[{row.name, row.phase}] = &row;
  }
  LayerShape layer;
  layer.batch = 2;
  layer.seq = 64;
  layer.model_dim = 128;
  layer.hidden = 512;
  layer.heads = 8;
  layer.experts = 2;
  const LayerCase shape = complete(layer, {}, Rounding::ragged);  // one rank: no collective needs a row
  const Plan plan = build_plan(find_schedule("ds-moe"), shape, {});
  const LayerPricer pricer(profile, shape);
  const auto seconds = price(pricer, plan);
  int priced = 0;
  for (const Task& task : plan.tasks()) {
    const auto row = rows.find({module_name(task.kind, shape), task.phase});
    if (task.group != GroupKind::none || row == rows.end()) continue;
    const double size = module_size({task.kind, ""}, task.phase, shape);
    EXPECT_GT(size, 0) << task.name();
    EXPECT_DOUBLE_EQ(seconds[task.id], row->second->alpha_s + size * row->second->beta()) << task.name();
    ++priced;
  }
  EXPECT_EQ(priced, 10);
}

}  // namespace
}  // namespace moe::commands
