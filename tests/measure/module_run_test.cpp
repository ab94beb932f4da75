// Every registered sub-module is checked.
#include "moe/measure/modules/module_run.h"

#include <cmath>
#include <gtest/gtest.h>

namespace moe::measure {
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
  for (const char* name : {"gates:gshard", "gate", "gate:", "attention:flash", "attention:", "attention:full", "norm"})
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
  EXPECT_EQ(repeated_run_error(zero, Phase::backward), "found only zeros, expected other numbers too");
  drifting.drift = 1e-9;
  drifting.run(Phase::backward);
  EXPECT_EQ(repeated_run_error(drifting, Phase::backward),
            "found different numbers in a second run, expected equal ones");
  Twice infinite(INFINITY);
  infinite.run(Phase::backward);
  EXPECT_EQ(repeated_run_error(infinite, Phase::backward), "found numbers that are not finite");
}

}  // namespace
}  // namespace moe::measure
