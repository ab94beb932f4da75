// Every registered sub-module: checked, timed, fitted, and priced in a simulation by its own row.
#include "moe/measure/module_run.h"

#include <cmath>
#include <gtest/gtest.h>
#include <map>
#include <numeric>

#include "moe/cost/fit.h"
#include "moe/cost/pricer.h"
#include "moe/measure/op_records.h"
#include "moe/schedule/schedule.h"

namespace moe {
namespace {

TEST(ModuleRun, EveryRegisteredModulesGradientIsTheSlopeOfItsForward) {
  const auto names = registered_modules();
  EXPECT_GE(names.size(), 5U);
  for (const std::string& name : names) EXPECT_EQ(gradient_error(name), "") << name;
}

TEST(ModuleRun, EveryRegisteredModuleRepeatsItself) {
  LayerCase shape = small_module_case();
  shape.layer.dtype = DType::float32;
  for (const std::string& name : registered_modules()) {
    const auto module = make_module_run(name, shape);
    for (const Phase phase : {Phase::forward, Phase::backward}) {
      module->prepare(phase);
      module->run(phase);
      EXPECT_EQ(repeated_run_error(*module, phase), "") << name << " " << name_of(phase);
    }
  }
}

TEST(ModuleRun, UnknownModulesAreRefused) {
  const LayerCase shape = small_module_case();
  for (const char* name : {"gates:gshard", "gate", "gate:", "attention:flash", "norm"})
    EXPECT_THROW(make_module_run(name, shape), BadInput) << name;
  EXPECT_THROW(make_module_run("gate:none", shape), BadInput);
  EXPECT_THROW(make_module_run("expert:none", shape), BadInput);
  EXPECT_THROW(make_module_run("hook:none", shape), BadInput);
}

// Twice its input; backward is told by what.
class Twice final : public ModuleRun {
 public:
  explicit Twice(double back) : back_(back) {
    for (Tensor* t : {&input_, &output_, &d_output_, &d_input_}) *t = Tensor({4, 3}, DType::float64);
    for (int i = 0; i < 12; ++i) input_.view().as<double>()[i] = d_output_.view().as<double>()[i] = i - 3.5;
  }
  void run(Phase phase) override {
    const bool forward = phase == Phase::forward;
    const Tensor &from = forward ? input_ : d_output_, &to = forward ? output_ : d_input_;
    for (int i = 0; i < 12; ++i) to.view().as<double>()[i] = (forward ? 2 : back_) * from.view().as<double>()[i];
    back_ += drift;
  }
  double drift = 0;

 private:
  double back_;
};

TEST(ModuleRun, WrongGradientsAndRunsThatDifferAreFound) {
  Twice right(2), wrong(2.001), zero(0), drifting(2);
  EXPECT_EQ(slope_error(right), "");
  EXPECT_NE(slope_error(wrong), "");
  right.run(Phase::backward);
  EXPECT_EQ(repeated_run_error(right, Phase::backward), "");
  zero.run(Phase::backward);
  EXPECT_EQ(repeated_run_error(zero, Phase::backward), "found zeros alone");
  drifting.drift = 1e-9;
  drifting.run(Phase::backward);
  EXPECT_EQ(repeated_run_error(drifting, Phase::backward), "run again, the numbers differ");
  Twice infinite(INFINITY);
  infinite.run(Phase::backward);
  EXPECT_EQ(repeated_run_error(infinite, Phase::backward), "found numbers that are not finite");
}

// What simulate shows of a module's task is what its fitted row says of the layer's own FLOPs or bytes.
TEST(Modules, MeasuredAndFittedTheyPriceASimulation) {
  const std::vector<std::string> names{"attention", "gate:gshard", "order:tutel", "i-order:tutel", "expert:gpt"};
  const Site site = site_of("host", nullptr);
  std::vector<OpCase> cases;
  for (const OpCase& c : module_cases(names, site.cluster))
    if (!c.seq || *c.seq == 64) cases.push_back(c);
  std::vector<CaseRecord> records;
  std::vector<size_t> all(cases.size());
  std::iota(all.begin(), all.end(), 0);
  OpSettings settings;
  settings.repetitions = 3;
  const auto check = [&](const OpCase& c, const OpResult& result) {
    records.push_back(record_of(c, result, site));
    EXPECT_EQ(records.back().status, CaseStatus::ok) << c.key() << ": " << records.back().reason;
  };
  bench_ops(site, cases, settings, {check}, all);
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
    const auto row = rows.find({module_name(task.kind, shape.layer), task.phase});
    if (task.group != GroupKind::none || row == rows.end()) continue;
    const double size = module_size({task.kind, ""}, task.phase, shape);
    EXPECT_GT(size, 0) << task.name();
    EXPECT_DOUBLE_EQ(seconds[static_cast<size_t>(task.work_class)], row->second->alpha_s + size * row->second->beta())
        << task.name();
    ++priced;
  }
  EXPECT_EQ(priced, 10);
}

}  // namespace
}  // namespace moe
