// Plans of whole models refuse what their schedule does not have, as plans of one layer do, before anything is built.
#include <gtest/gtest.h>

#include "moe/base/check.h"
#include "moe/schedule/model_plan.h"

namespace moe {
namespace {

ModelShape three_layers() {
  LayerShape layer{.batch = 2, .seq = 20, .model_dim = 16, .hidden = 32, .heads = 8, .experts = 12};
  return {complete(layer, {.nodes = 2, .ranks_per_node = 2}, Rounding::ragged), 3, 1};
}

ModelDecision plain() {
  ModelDecision decision;
  decision.backwards.resize(3);
  return decision;
}

TEST(ModelDecisions, AreRefusedWhereTheScheduleDoesNotHaveThem) {
  for (const Schedule& schedule : schedules()) {
    if (!schedule.variants.empty()) continue;
    SCOPED_TRACE(schedule.name);
    const bool adaptive = schedule.gradients == GradientPolicy::adaptive;
    EXPECT_NO_THROW(build_model_plan(schedule, three_layers(), plain()));
    ModelDecision beside = plain(), in_moe = plain(), order = plain(), gaps = plain(), degrees = plain();
    beside.backwards[1].gar_beside_dense_bytes = 400;
    if (adaptive || schedule.gradients == GradientPolicy::beside_dense)
      EXPECT_NO_THROW(build_model_plan(schedule, three_layers(), beside));
    else
      EXPECT_THROW(build_model_plan(schedule, three_layers(), beside), BadInput);
    in_moe.backwards[1].gar_in_moe_bytes = 400;
    if (adaptive)
      EXPECT_NO_THROW(build_model_plan(schedule, three_layers(), in_moe));
    else
      EXPECT_THROW(build_model_plan(schedule, three_layers(), in_moe), BadInput);
    order.order_forward = "GSGSGS";  // of three chunks, where there is one
    EXPECT_THROW(build_model_plan(schedule, three_layers(), order), BadInput);
    gaps.backwards[1].gaps = {0};
    if (schedule.gradients != GradientPolicy::micro_ops) {
      EXPECT_THROW(build_model_plan(schedule, three_layers(), gaps), BadInput);
    }
    degrees.backwards[1].degree = 2;
    if (schedule.degrees != DegreePolicy::apart) {
      EXPECT_THROW(build_model_plan(schedule, three_layers(), degrees), BadInput);
    }
    ModelDecision first = plain();  // nothing waits yet when the first backward begins
    first.backwards[0].gar_in_moe_bytes = first.backwards[0].gar_beside_dense_bytes = 400;
    EXPECT_THROW(build_model_plan(schedule, three_layers(), first), BadInput);
  }
}

}  // namespace
}  // namespace moe
