#include "moe/measure/layers/rank_run.h"

#include "moe/device/device.h"
#include "moe/stack/stack_binding.h"

namespace moe {

bool one_layer(const Plan& plan) { return plan.layers == 1 && plan.micro_batches == 1 && plan.shape.parallel.pp == 1; }

void require_runs(const Plan& plan) { one_layer(plan) ? require_runnable(plan) : require_stack_runs(plan); }

RankRun::RankRun(const Plan& plan, Communicator& world, const Setup& setup)
    : device_(make_device(setup.kind, setup.place)),
      layer_device_(setup.kind == DeviceKind::cuda ? make_cuda_layer_device() : nullptr) {
  LayerDevice& on = layer_device_ ? *layer_device_ : cpu_layer_device();
  LayerSeed seed;
  seed.seed = setup.seed;
  if (one_layer(plan))
    layer_ = std::make_unique<MoeLayer>(rank_shape(plan.shape, world.rank(), plan.structure->flow), seed,
                                        LayerComms::split(world, plan.shape.parallel), on);
  else
    stack_ = std::make_unique<LayerStack>(stack_shape(plan), world.rank(), seed, world, on);
  for (const auto& layer : cells().layers)
    for (MoeLayer* cell : layer) cell->preset(setup.workload);
  if (stack_)
    binding_ = std::make_unique<StackBinding>(*stack_, plan, *device_);
  else
    binding_ = std::make_unique<LayerBinding>(*layer_, plan);
  executor_ = std::make_unique<Executor>(*device_, plan.structure, stack_ ? stack_->stage() : 0);
}

}  // namespace moe
