#pragma once
// Implements the tasks of a whole iteration's plan on one rank. LayerBinding runs the passes of a layer over a
// micro-batch; this class adds what lies between them: gradient slices, which may span several layers, and the data
// that goes from stage to stage.
//
// A gradient task sums the gradients of its own iteration, so that all gradients are whole after one pass.
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "moe/base/enum_array.h"
#include "moe/exec/executor.h"
#include "moe/layer/binding.h"
#include "moe/stack/layer_stack.h"

namespace moe {

/// Splits a plan into the passes of each layer over each micro-batch, as plans of that layer alone, with its own case.
struct CellPlans {
  explicit CellPlans(const Plan& whole);
  const Plan& at(int layer, int micro_batch) const { return plans[layer][micro_batch]; }

  std::vector<std::vector<Plan>> plans;  // [layer][micro-batch]
  std::vector<int> own_id;               // by task id: its id in its cell's plan; -1: in no layer's pass
};

/// Throws Unsupported naming what a stack can't run of a plan: gradients of a model's ends, chunks that mix (cuts_of).
void require_stack_runs(const Plan& plan);

/// The tasks that a model's plan has beside its layers: those of its ends, sums of their norms and gathers of their
/// weights, the norm and the optimizer's tasks, on the host too.
class ModelTasks {
 public:
  virtual ~ModelTasks() = default;
  /// Enqueues a task. When an optimizer's task is issued, its layer's gradients are whole.
  virtual void issue(const Task& task, CommCall call) = 0;
};

class StackBinding : public Binding {
 public:
  /// Binds a plan, whose structure is shared, to `stack`, which must outlive the binding. `device` makes the streams on
  /// which data leave the stage. Throws WrongResult naming the difference unless the plan has the stack's case, layers,
  /// micro-batches and memory slots, and its step is planned. `model`: for a plan with a vocabulary; outlives the
  /// binding. Without one, an optimizer's task does nothing.
  StackBinding(LayerStack& stack, const Plan& plan, Device& device, ModelTasks* model = nullptr);

  void issue(const Task& task, Stream& stream, Pace pace) override;
  void finish_task(const Task& task, Stream& stream) override;
  bool can_issue_ahead() const override { return plan_.shape.layer.capacity_factor.has_value(); }

 private:
  struct Place {                 // the execution of a task
    Binding* cell = nullptr;     // null: the task is in no layer's pass
    const Task* task = nullptr;  // the task in the cell's plan
    std::string name = {};
    TensorView data = {};               // data that the task sums, sends or receives
    std::unique_ptr<Event> ready = {};  // for a send: when its data may leave; for a store that
                                        // completes gradients: when squares may read them
    TensorView window = {};             // for offloaded experts: the weights that the task fetches or reads
  };

  void begin_pass();
  void add_cells();
  void set_into();
  void add_place(const Task& task, Device& device);
  void add_window(const Task& task, Place& place);
  TensorView summed(const Task& task) const;
  void issue_step(const Task& task, CommCall call);
  void fetch(const Task& task, Stream& stream);
  void store(const Task& task, Stream& stream);
  bool offloads() const { return plan_.shape.parallel.offload == Offload::experts; }
  void sum_remaining_gradients(const Task& task, Stream& stream);
  void sum_of_layer(int layer, Stream& stream);
  void sum_experts(int layer, Stream& stream);
  bool completes_experts(int layer) const;
  TensorView experts_of(int layer) const;
  /// Returns the data that leave or enter the stage in the task's phase and micro-batch.
  TensorView boundary_tensor(const Task& task) const;

  LayerStack& stack_;
  ModelTasks* model_;
  Plan plan_;
  CellPlans cell_plans_;
  std::vector<std::vector<std::unique_ptr<Binding>>> cells_;  // [place among the stage's layers][micro-batch]
  std::vector<Place> places_;                                 // by task id; empty for tasks of other stages
  std::array<int, kWindowLayers> fetched_{-1, -1};  // by place of the window: the layer, while places are made
  int first_task_ = -1;
  bool sums_dense_ = false, sums_experts_ = false, sums_alike_ = false;  // whether tasks of this stage do so
  EnumArray<Phase, std::unique_ptr<Stream>, 2> leaving_;                 // for data that leave the stage
};

}  // namespace moe
